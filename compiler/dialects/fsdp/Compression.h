// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions that send less than the gradient and keep the rest of it on the
// rank: the hooks top-k and power-sgd. The layout says how its reduction
// compresses, so passes ask here and never read the hooks themselves.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/options/Options.h"
#include "runtime/abi/power_sgd.h"

namespace fsdpc::fsdp {

/// How the gradients of a layout are reduced. At most one is not 0.
struct Compression {
  int64_t topK = 0;      ///< elements that each rank sends
  int64_t powerRank = 0; ///< of the factors in place of matrices

  bool operator==(const Compression &) const = default;
  explicit operator bool() const { return topK != 0 || powerRank != 0; }
};

/// Returns what the layout says.
Compression compressionOf(LayoutOp layout);

/// Returns what the options want for a trainable layout of so many elements
/// with members of these shapes. power-sgd leaves a layout alone if it
/// compresses none of them.
Compression wantedCompression(const CompileOptions &options, int64_t elements,
                              llvm::ArrayRef<llvm::ArrayRef<int64_t>> shapes);

/// Returns the elements of both sums of a layout with a powerRank.
PowerSizes powerSizesOf(LayoutOp layout, const mlir::SymbolTable &symbols);

/// Fails with an error if the layout does not compress as the options want, or
/// cannot under its strategy.
llvm::LogicalResult verifyCompression(LayoutOp layout, Strategy strategy,
                                      const CompileOptions &options,
                                      const mlir::SymbolTable &symbols);

} // namespace fsdpc::fsdp
