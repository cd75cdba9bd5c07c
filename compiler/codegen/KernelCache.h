// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps the code of kernels that this user has compiled before. Kernels depend
// on few of the flags of a compile, so that one with another strategy, schedule
// or number of ranks finds nearly all of its code here.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>

namespace fsdpc::codegen {

/// A folder of code, by a digest of all that decides it: the kernels' text, how
/// they are compiled, and the compiler with its libraries. So no entry is ever
/// outdated, and compiles that run at once write the same. Several threads may
/// use a cache. Nothing here fails a compile: what cannot be read, or is
/// damaged, is compiled again, and what cannot be written is not kept.
class KernelCache {
public:
  /// Returns the cache in the folder "kernels" of `chosen`, or if that is empty
  /// in the user's cache (runtime/support/cache_folder.h). `fault` says why if
  /// there is none.
  static std::optional<KernelCache> open(const std::string &chosen,
                                         std::string &fault);

  /// Returns the key of kernels with these texts. `recipe` names what else
  /// decides their code.
  std::string keyOf(llvm::StringRef recipe,
                    llvm::ArrayRef<std::string> kernels) const;
  /// Returns the code that was stored under the key.
  std::optional<std::string> find(llvm::StringRef key) const;
  void store(llvm::StringRef key, llvm::StringRef code) const;

private:
  KernelCache(std::string folder, std::string compiler)
      : folder(std::move(folder)), compiler(std::move(compiler)) {}

  std::string folder;
  std::string compiler; ///< the build IDs of fsdpc and its libraries
};

} // namespace fsdpc::codegen
