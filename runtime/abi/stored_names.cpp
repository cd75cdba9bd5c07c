// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/abi/stored_names.h"
#include "runtime/support/json_text.h"

namespace fsdpc::runtime {

std::optional<std::string> StoredNames::add(const std::string &name) {
  constexpr char metadata[] = "__metadata__";
  if (name == metadata)
    return metadata;
  auto [place, isNew] = names.emplace(storedName(name), name);
  return isNew ? std::nullopt : std::optional(place->second);
}

} // namespace fsdpc::runtime
