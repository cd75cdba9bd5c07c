// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The hooks of --reduce-hook as ops between a parameter's gradient and the pack
// that is reduced. They are plain `nn` ops, so that outline-kernels fuses them
// with what computes the gradient. Each has the attribute fsdp.hook, the number
// of its hook, from which verify-shard tells that none is missing.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/options/Options.h"

#include "mlir/IR/OwningOpRef.h"
#include "llvm/ADT/DenseMap.h"

namespace fsdpc::passes {

inline constexpr llvm::StringLiteral kHookAttr = "fsdp.hook";

/// The hooks of the options, with the functions of those that are the user's.
class ReduceHooks {
public:
  /// Emits an error if the function of a hook of the user's is not valid.
  static mlir::FailureOr<ReduceHooks> of(const fsdp::CompileOptions &options,
                                         mlir::MLIRContext *context);

  /// Builds the hooks on `gradient` at the builder's insertion point, as ops of
  /// the backward of the layout's unit. Returns the gradient to reduce. The
  /// attributes it sets make verify-shard and mixed-precision know the ops
  /// again. `keptF32` is true for a layout that --keep-f32 leaves in f32.
  mlir::Value apply(mlir::OpBuilder &builder, mlir::Location loc,
                    fsdp::LayoutOp layout, bool keptF32,
                    mlir::Value gradient) const;

private:
  std::vector<fsdp::ReduceHook> hooks;
  /// One per hook, null unless it is the user's.
  std::vector<mlir::OwningOpRef<mlir::ModuleOp>> programs;
};

/// Returns true if the op is of a hook that multiplies by a factor which the
/// update takes back. A factor that was rounded to 16 bits would make the mean
/// another one.
bool computesInF32(const fsdp::CompileOptions &options, mlir::Operation *op);

/// Finds the hooks that gradients have passed. Gradients that are copies of one
/// value are copies of each other in a chain over all packs, so the value
/// behind each copy is remembered. Valid while the function does not change.
class HookFinder {
public:
  /// Returns the numbers of the hooks that the value has passed, the last
  /// first. Stops at the first op that is of no hook, which computes the
  /// gradient.
  llvm::SmallVector<int64_t> hooksBehind(mlir::Value value);

private:
  /// Returns the value of which `value` is a copy or a cast that is of no hook.
  mlir::Value behindCopies(mlir::Value value);

  llvm::DenseMap<mlir::Value, mlir::Value> origins;
};

/// Fails with an error if one of the pack's gradients did not pass all hooks in
/// their order, or passed others. One finder serves all packs of a function.
llvm::LogicalResult verifyHooks(const fsdp::CompileOptions &options,
                                fsdp::PackOp pack, HookFinder &finder);

} // namespace fsdpc::passes
