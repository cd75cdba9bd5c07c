// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The safetensors format (huggingface/safetensors): eight bytes with the length
// of the header, a JSON header with the dtype, shape and byte range of each
// tensor, then the data. Files come from outside, so the reader trusts nothing:
// it checks every length and range against the size of the file.
#pragma once

#include "runtime/support/file.h"
#include "runtime/support/renaming.h"
#include "runtime/support/status.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fsdpc::runtime {

struct SafeTensor {
  std::string dtype; ///< as the manifest names it
  std::vector<int64_t> shape;
  uint64_t offset = 0, bytes = 0; ///< in the file
};

/// An open file. Returned tensors live as long as it.
class SafeTensors {
public:
  static Result<SafeTensors> open(const std::string &path);
  /// Looks a tensor up by its name, then by each of `aliases`, then by an alias
  /// that the file's own metadata gives to the name. Returns null if there is
  /// none.
  const SafeTensor *find(const std::string &name,
                         const std::vector<std::string> &aliases) const;
  const File &file() const { return source; }
  const std::map<std::string, SafeTensor> &tensors() const { return entries; }
  /// Other names that the file's metadata gives to tensors: alias → name.
  const std::map<std::string, std::string> &aliases() const { return aliasOf; }
  /// The hash of the frozen parameters that the file leaves out, or "".
  const std::string &base() const { return baseHash; }

private:
  Status parse(const std::string &header, uint64_t dataOffset);
  File source;
  std::map<std::string, SafeTensor> entries;
  std::map<std::string, std::string> aliasOf;
  std::string baseHash;
};

/// Builds a header. The data of the tensors follows in the order of `add`,
/// without gaps. A name may be added once; the reader would refuse the file
/// otherwise.
class SafeTensorsHeader {
public:
  /// Adds a tensor and returns its offset within the data, in bytes.
  uint64_t add(const std::string &name, const std::string &dtype,
               const std::vector<int64_t> &shape,
               const std::vector<std::string> &aliases);
  /// Says in the metadata that frozen parameters of this hash are left out.
  void setBase(const std::string &hash) { base = hash; }
  /// Changes the names of what is added from now on.
  void setRenaming(const Renaming &changes) { renaming = changes; }
  /// Returns length, header and padding. The data begins right after, aligned
  /// to 64 bytes.
  std::string text() const;

private:
  struct Entry {
    std::string name, dtype;
    std::vector<int64_t> shape;
    uint64_t begin, end;
  };
  std::vector<Entry> entries;
  std::map<std::string, std::string> aliasOf;
  std::string base;
  Renaming renaming;
  uint64_t end = 0;
};

} // namespace fsdpc::runtime
