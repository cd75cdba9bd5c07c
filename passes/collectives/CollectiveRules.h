// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules of verify-collectives that have files of their own: how gradients
// are handed over in @microbatch, and the collectives of @update.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/SymbolEffects.h"
#include "compiler/options/Options.h"

#include "llvm/ADT/DenseMap.h"

namespace fsdpc::passes {

/// Returns true if one of the effects writes the resource.
bool writes(mlir::ArrayRef<fsdp::SymbolEffect> effects,
            mlir::SideEffects::Resource *resource);

/// Ranks must meet at the same collectives, so none stands in a region, which
/// ranks may run differently. An entry function has one block.
llvm::LogicalResult verifySymmetry(mlir::Operation *op);

/// The reductions of @microbatch: each trainable layout's packed gradient is
/// handed over once.
class GradientReductions {
public:
  GradientReductions(const mlir::SymbolTable &symbols,
                     const fsdp::CompileOptions &options)
      : symbols(symbols), options(options),
        reducesInUpdate(options.reduce == fsdp::ReductionTime::Step) {}

  /// Checks an op that writes gradients. Must be called for each of them in
  /// program order. Emits an error.
  llvm::LogicalResult verify(mlir::Operation *op);

  /// Checks that no trainable layout was left out. Must be called after the
  /// last op.
  llvm::LogicalResult verifyComplete(mlir::ModuleOp module) const;

private:
  llvm::StringRef reduction() const;
  llvm::LogicalResult
  verifyBucket(mlir::Operation *op,
               mlir::ArrayRef<mlir::FlatSymbolRefAttr> names, size_t owned,
               int64_t elements);
  llvm::LogicalResult verifyEnd(mlir::Operation *op, fsdp::LayoutOp layout);

  const mlir::SymbolTable &symbols;
  const fsdp::CompileOptions &options;
  bool reducesInUpdate;
  mlir::Operation *atEnd = nullptr; ///< the reduction at the end
  /// The op that handed over the gradient of each layout, for notes of errors.
  llvm::DenseMap<mlir::StringAttr, mlir::Operation *> reductions;
};

/// Checks the collectives of @update: ranks meet at them, gradients are changed
/// by them only, and each stands where the strategies of layouts and --reduce
/// want it.
llvm::LogicalResult verifyUpdateCollectives(mlir::ModuleOp module,
                                            const fsdp::CompileOptions &options,
                                            mlir::Block &update);

} // namespace fsdpc::passes
