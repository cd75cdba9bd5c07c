// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks how gradients are handed over in @microbatch: packed as their layout
// lies, in its unit, once, and by the op that --reduce wants. A gradient that
// is handed over in another way trains the wrong parameters without an error.
#include "passes/collectives/CollectiveRules.h"
#include "passes/collectives/Segments.h"

#include "compiler/dialects/fsdp/Rules.h"
#include "compiler/dialects/fsdp/Strategies.h"

namespace fsdpc::passes {

using namespace mlir;
using fsdp::broken;
using fsdp::nameOrNone;
using fsdp::refuseWithNote;

// For diagnostics: what the microbatch does with gradients under --reduce.
StringRef GradientReductions::reduction() const {
  return reducesInUpdate ? "accumulated" : "reduced";
}

LogicalResult GradientReductions::verify(Operation *op) {
  if (isa<fsdp::ReduceScatterWaitOp>(op))
    return success(); // its start names the gradients
  bool accumulates = isa<fsdp::AccumulateOp>(op);
  if (accumulates != reducesInUpdate ||
      (!accumulates && !fsdp::isTransfer(op, fsdp::TransferKind::Reduce)))
    return broken(op, "reduce-once")
           << "with --reduce="
           << (reducesInUpdate ? "step gradients are accumulated"
                               : "microbatch gradients are reduced")
           << " in '@microbatch'";
  auto names = cast<fsdp::LayoutUserOpInterface>(op).getLayoutRefs();
  // An op without a unit reduces the layouts of many units, and one of a unit
  // must reduce a layout of that unit. Fused reductions may have others
  // besides.
  bool ofUnit = !getUnit(op);
  size_t owned = 0;
  int64_t elements = 0;
  for (auto [name, gradient] : llvm::zip_equal(names, op->getOperands())) {
    auto [other, isNew] = reductions.try_emplace(name.getAttr(), op);
    if (!isNew)
      return refuseWithNote(broken(op, "reduce-once")
                                << "the gradient of layout '" << name.getValue()
                                << "' is " << reduction() << " twice",
                            other->second, "the first time is here");
    auto layout = symbols.lookup<fsdp::LayoutOp>(name.getAttr());
    if (!reducesInUpdate && failed(verifyEnd(op, layout)))
      return failure();
    // The pack is what puts gradients where the layout's members lie. Any
    // other tensor of that size would be reduced to the wrong parameters.
    auto pack = gradient.getDefiningOp<fsdp::PackOp>();
    if (!pack || pack.getLayoutAttr() != name)
      return broken(op, "gradient")
             << "its gradient of layout '" << name.getValue()
             << "' is not an 'fsdp.pack' of that layout";
    ofUnit |= layout.getUnitAttr() == getUnit(op);
    owned += fsdp::hasOwner(layout, options);
    elements += layout.getElements();
  }
  if (!reducesInUpdate && failed(verifyBucket(op, names, owned, elements)))
    return failure();
  if (!ofUnit)
    return broken(op, "unit")
           << "it belongs to unit '" << nameOrNone(getUnit(op))
           << "', which has none of its layouts";
  return success();
}

// A reduction to owners has a bucket's parameters and no other layouts: the
// ranks exchange its gradients in another way.
LogicalResult
GradientReductions::verifyBucket(Operation *op,
                                 ArrayRef<FlatSymbolRefAttr> names,
                                 size_t owned, int64_t elements) {
  if (owned == 0)
    return success();
  if (owned != names.size())
    return broken(op, "bucket") << "only " << owned << " of its "
                                << names.size() << " layouts have owners";
  if (owned > 1 && elements > options.bucketSize)
    return broken(op, "bucket")
           << "it reduces " << elements
           << " elements of several parameters, but --bucket-size is "
           << options.bucketSize;
  return success();
}

// Strategies that do not free gradients within the microbatch have one
// reduction for all of their layouts, at its end.
LogicalResult GradientReductions::verifyEnd(Operation *op,
                                            fsdp::LayoutOp layout) {
  if (!fsdp::strategyOf(layout, options)->reducesAtEnd)
    return success();
  if (atEnd && atEnd != op)
    return refuseWithNote(broken(op, "reduce-once")
                              << "one op reduces all layouts whose strategies "
                                 "reduce at the end, such as '"
                              << layout.getSymName() << "'",
                          atEnd, "the first is here");
  atEnd = op;
  return success();
}

LogicalResult GradientReductions::verifyComplete(ModuleOp module) const {
  for (auto layout : module.getOps<fsdp::LayoutOp>())
    if (layout.getTrainable() && !reductions.contains(layout.getSymNameAttr()))
      return broken(layout, "reduce-once")
             << "the gradient of layout '" << layout.getSymName() << "' is not "
             << reduction() << " in '@microbatch'";
  return success();
}

} // namespace fsdpc::passes
