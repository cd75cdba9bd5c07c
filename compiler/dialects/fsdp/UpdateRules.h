// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules of @update and of layouts, for all phases from `shard` on: their
// verifiers ask here, so that an edited dump is held to it in each phase.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/options/Options.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc::fsdp {

/// Checks that each layout's `whole` is what its strategy and --reduce keep on
/// every rank, in any order, and that the target has that strategy. Emits an
/// error that begins with "breaks rule 'replication'".
llvm::LogicalResult verifyReplication(mlir::ModuleOp module,
                                      const mlir::SymbolTable &symbols);

/// Checks that @update takes one norm over all trainable layouts (sum_squares,
/// all_reduce, clip_scale) and applies one optimizer, scaled by its result, to
/// each of them. An optimizer that takes sums, factors or updates gets those of
/// its own layout, over all ranks. Emits an error that begins with "breaks
/// rule" and the rule's name: 'norm', 'scale', 'optimizer', 'sums', 'factors'
/// or 'updates'.
llvm::LogicalResult verifyUpdate(mlir::ModuleOp module, mlir::Block &update);

/// Checks that the op names each trainable layout for which `isWanted` returns
/// true exactly once, and no other. Emits an error that begins with the name of
/// `rule`, which is the caller's.
llvm::LogicalResult verifyNames(mlir::ModuleOp module, LayoutUserOpInterface op,
                                llvm::StringRef rule,
                                llvm::function_ref<bool(LayoutOp)> isWanted);

} // namespace fsdpc::fsdp
