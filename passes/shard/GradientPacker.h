// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Packs the gradients of each layout into one buffer in @microbatch, and
// reduces it. shard-parameters uses it when the layouts exist.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/options/Options.h"
#include "passes/shard/ReduceHooks.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringMap.h"

#include <utility>

namespace fsdpc::passes {

class GradientPacker {
public:
  /// `body` is that of @microbatch. All arguments must outlive the packer.
  GradientPacker(mlir::Block &body, const mlir::SymbolTable &symbols,
                 const fsdp::CompileOptions &options, const ReduceHooks &hooks)
      : body(body), symbols(symbols), options(options), hooks(hooks) {}

  /// Finds the gradients of parameters. A trainable parameter without a
  /// gradient joins the frozen ones, with a remark. Called before the layouts
  /// exist, since they separate trainable parameters from frozen ones.
  void findGradients(mlir::ModuleOp module);
  /// Packs and reduces the gradients of the layouts, whose members all have
  /// one, and erases the fsdp.gradient ops. Returns the number of gradients
  /// that had to be copied into their pack. Called once: places and copies are
  /// remembered over all layouts.
  int64_t pack(mlir::ArrayRef<fsdp::LayoutOp> layouts);

private:
  /// A unit, and the layout's name if it is reduced on its own, or null.
  using Place = std::pair<mlir::Attribute, mlir::Attribute>;

  struct End {
    /// The op behind which the next pack of a place stands.
    mlir::Operation *op = nullptr;
    /// The place's number in program order.
    unsigned number = 0;
  };
  struct Copy {
    mlir::Value value;
    unsigned place; ///< the number of the place at which it stands
  };

  mlir::Operation *lastReaderOf(mlir::Value root);
  bool isPlaceable(mlir::Value value, mlir::Operation *end);
  void findPlaceable(fsdp::LayoutOp layout);
  Place placeOf(fsdp::LayoutOp layout) const;
  void findEnd(fsdp::LayoutOp layout);
  void numberEnds();
  void hookGradients(fsdp::LayoutOp layout);
  mlir::Value copyOf(fsdp::GradientOp gradient, unsigned place,
                     mlir::OpBuilder &builder);
  void packLayout(fsdp::LayoutOp layout);

  mlir::Block &body;
  const mlir::SymbolTable &symbols;
  const fsdp::CompileOptions &options;
  const ReduceHooks &hooks;
  llvm::StringMap<fsdp::GradientOp> gradients;
  llvm::DenseMap<Place, End> ends;
  /// From a value to the last op that reads it or a reshape of it.
  llvm::DenseMap<mlir::Value, mlir::Operation *> lastReaders;
  /// Values that are written into a pack directly, and the fsdp.gradient ops
  /// that say so.
  llvm::DenseSet<mlir::Value> placed;
  llvm::SmallPtrSet<mlir::Operation *, 16> placeable;
  /// From a value to its copy that stands last.
  llvm::DenseMap<mlir::Value, Copy> lastCopy;
  int64_t copies = 0;
};

} // namespace fsdpc::passes
