// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads and writes activations by position.
#include "runtime/core/activation_file.h"
#include "runtime/support/output_file.h"

#include <utility>

namespace fsdpc::runtime {

Result<std::unique_ptr<ActivationFile>>
ActivationFile::make(const std::string &folder, int64_t bytes) {
  Result<ReservedFile> reserved =
      reserveFile(folder + "/fsdpc-activations", uint64_t(bytes));
  FSDPC_TRY(reserved);
  auto made = std::make_unique<ActivationFile>();
  made->reserved = std::move(*reserved);
  return made;
}

Status ActivationFile::write(int64_t place, const void *from, int64_t bytes) {
  if (!writeAt(reserved.descriptor, uint64_t(place), from, uint64_t(bytes)))
    return fileError(reserved.file.path(), "write");
  return {};
}

Status ActivationFile::read(int64_t place, void *to, int64_t bytes) const {
  return reserved.file.read(uint64_t(place), to, uint64_t(bytes));
}

} // namespace fsdpc::runtime
