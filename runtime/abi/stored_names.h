// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which names of tensors saved files and checkpoints can tell apart. A model's
// names are any bytes; files are JSON.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace fsdpc::runtime {

/// The names of the tensors of one file. Files replace bytes that are not
/// UTF-8, so two names may become one, and the format safetensors has the key
/// '__metadata__' for what is no tensor.
class StoredNames {
public:
  /// Adds a name. Returns the name that a file could not tell from it, if there
  /// is one: an earlier one, or that key.
  std::optional<std::string> add(const std::string &name);

private:
  std::map<std::string, std::string> names; ///< as stored → as added
};

} // namespace fsdpc::runtime
