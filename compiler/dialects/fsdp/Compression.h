// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions that send less than the gradient and keep the rest of it on the
// rank. The layout says how its reduction compresses, and its kind
// (runtime/abi/compression.h) what follows, so passes ask here and never read
// the hooks themselves.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/options/Options.h"
#include "runtime/abi/compression.h"

namespace fsdpc::fsdp {

/// Returns the layout's compression; its kind is empty if there is none.
Compression compressionOf(LayoutOp layout);

/// Returns what the options want for a trainable layout of so many elements
/// with members of these shapes.
Compression wantedCompression(const CompileOptions &options, int64_t elements,
                              const MemberShapes &shapes);

/// Returns the shapes of the layout's members, as descriptions of compressions
/// take them.
MemberShapes shapesOf(LayoutOp layout, const mlir::SymbolTable &symbols);

/// Fails with an error if the layout does not compress as the options want, or
/// cannot under its strategy.
llvm::LogicalResult verifyCompression(LayoutOp layout, Strategy strategy,
                                      const CompileOptions &options,
                                      const mlir::SymbolTable &symbols);

} // namespace fsdpc::fsdp
