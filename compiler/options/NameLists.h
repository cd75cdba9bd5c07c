// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows of constexpr tables hold a list of names as one string.
#pragma once

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

namespace fsdpc::fsdp {

/// Returns the names of a list that are separated by '|', in their order. They
/// are parts of `list`.
inline llvm::SmallVector<llvm::StringRef> namesIn(llvm::StringRef list) {
  llvm::SmallVector<llvm::StringRef> names;
  list.split(names, '|', -1, /*KeepEmpty=*/false);
  return names;
}

} // namespace fsdpc::fsdp
