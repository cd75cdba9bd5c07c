// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Packs gradients (GradientPacker.h). The op that computes a gradient writes it
// into the pack directly where it can. A copy is needed where that memory is
// not the op's own, or is read after the pack exists.
#include "passes/shard/GradientPacker.h"

#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "llvm/ADT/STLExtras.h"

namespace fsdpc::passes {

using namespace mlir;
using fsdp::FSDPDialect;

void GradientPacker::findGradients(ModuleOp module) {
  for (auto gradient : body.getOps<fsdp::GradientOp>())
    gradients[gradient.getParameter()] = gradient;
  // A remark and not an error: models have parameters that the loss does not
  // use, and --trainable may name more than it needs.
  for (auto parameter : module.getOps<fsdp::ParameterOp>())
    if (parameter.getTrainable() && !gradients.count(parameter.getSymName())) {
      parameter.emitRemark()
          << "no gradient reaches parameter '" << parameter.getSymName()
          << "'; treating it as frozen";
      parameter.setTrainable(false);
    }
}

int64_t GradientPacker::pack(ArrayRef<fsdp::LayoutOp> layouts) {
  // The hooks follow after all ends are known: they insert ops before the
  // gradients, of which the ends are the last.
  for (fsdp::LayoutOp layout : layouts)
    findEnd(layout);
  numberEnds();
  for (fsdp::LayoutOp layout : layouts)
    hookGradients(layout);
  // Before any pack is inserted, as for the numbers of places.
  for (fsdp::LayoutOp layout : layouts)
    findPlaceable(layout);
  for (fsdp::LayoutOp layout : layouts)
    packLayout(layout);
  return copies;
}

static Value rootOf(Value value) {
  // A reshape shares the memory of what it reshapes.
  while (auto reshape = value.getDefiningOp<nn::ReshapeOp>())
    value = reshape.getInput();
  return value;
}

// Returns the last op that reads the value or a reshape of it. Each value has a
// reader: the fsdp.gradient that asks. Values are walked once, since many
// parameters may have the same gradient.
Operation *GradientPacker::lastReaderOf(Value root) {
  auto known = lastReaders.find(root);
  if (known != lastReaders.end())
    return known->second;
  Operation *last = nullptr;
  for (Operation *user : root.getUsers()) {
    Operation *reader =
        isa<nn::ReshapeOp>(user) ? lastReaderOf(user->getResult(0)) : user;
    if (reader && (!last || last->isBeforeInBlock(reader)))
      last = reader;
  }
  lastReaders[root] = last;
  return last;
}

// Returns true if the op that makes `value` can write directly into a pack
// after `end`. Views, slices and ops without operands do not own the memory
// of their results. A value can be a member of one pack only.
bool GradientPacker::isPlaceable(Value value, Operation *end) {
  Value root = rootOf(value);
  Operation *op = root.getDefiningOp();
  // Block arguments have no op; ops without operands are constants, buffers and
  // the like.
  if (!op || op->getNumOperands() == 0 || isa<fsdp::ViewOp, nn::SliceOp>(op))
    return false;
  // A later reader would find the pack's memory reduced or given to others.
  return !placed.contains(root) && !end->isBeforeInBlock(lastReaderOf(root)) &&
         placed.insert(root).second;
}

void GradientPacker::findPlaceable(fsdp::LayoutOp layout) {
  Operation *end = ends[placeOf(layout)].op;
  for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>()) {
    fsdp::GradientOp gradient = gradients[member.getParameter().getValue()];
    if (isPlaceable(gradient.getValue(), end))
      placeable.insert(gradient);
  }
}

// Layouts of one unit that are reduced when they are packed are packed at one
// place, so that they share a reduction, unless --layout-size cuts units in
// order to reduce less at a time, or buckets decide what is reduced together.
GradientPacker::Place GradientPacker::placeOf(fsdp::LayoutOp layout) const {
  // A layout that is reduced at the end of the step does not wait for the
  // others of its unit.
  fsdp::Strategy strategy = fsdp::strategyOf(layout, options);
  bool alone = options.layoutSize > 0 || strategy->reducesAtEnd ||
               strategy->over == fsdp::CutOver::Owner;
  return {layout.getUnitAttr(),
          alone ? Attribute(layout.getSymNameAttr()) : Attribute()};
}

// Moves the end of the layout's gradients behind the last of them.
void GradientPacker::findEnd(fsdp::LayoutOp layout) {
  Operation *&last = ends[placeOf(layout)].op;
  for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>()) {
    Operation *gradient = gradients[member.getParameter().getValue()];
    if (!last || last->isBeforeInBlock(gradient))
      last = gradient;
  }
}

// Numbers the places before any op is inserted: isBeforeInBlock would renumber
// the block after each insertion.
void GradientPacker::numberEnds() {
  SmallVector<End *> inOrder;
  for (auto &[place, end] : ends)
    inOrder.push_back(&end);
  llvm::sort(inOrder,
             [](End *a, End *b) { return a->op->isBeforeInBlock(b->op); });
  for (auto [number, end] : llvm::enumerate(inOrder))
    end->number = number;
}

// Copies a gradient at the insertion point, behind all else at its place. The
// second copy of a value reads the first copy, if that stands before it. Two
// parameters may have the same gradient, as two biases that are added have.
Value GradientPacker::copyOf(fsdp::GradientOp gradient, unsigned place,
                             OpBuilder &builder) {
  Value value = gradient.getValue();
  Copy &last = lastCopy.try_emplace(value, Copy{value, 0}).first->second;
  auto copy = nn::CopyOp::create(builder, gradient.getLoc(), value.getType(),
                                 last.place <= place ? last.value : value);
  ++copies;
  last = {copy.getResult(), place};
  return copy.getResult();
}

// Puts the hooks of --reduce-hook behind each gradient.
void GradientPacker::hookGradients(fsdp::LayoutOp layout) {
  for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>()) {
    fsdp::GradientOp gradient = gradients[member.getParameter().getValue()];
    OpBuilder builder(gradient);
    gradient.getValueMutable().assign(
        hooks.apply(builder, gradient.getLoc(), layout,
                    fsdp::keepsF32(layout, symbols), gradient.getValue()));
  }
}

// Packs the gradients of a layout after the last of them, when all its members
// exist, and reduces the pack.
void GradientPacker::packLayout(fsdp::LayoutOp layout) {
  SmallVector<fsdp::GradientOp> ops;
  for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>())
    ops.push_back(gradients[member.getParameter().getValue()]);
  auto &[last, place] = ends[placeOf(layout)];
  OpBuilder builder(body.getParentOp()->getContext());
  builder.setInsertionPointAfter(last);
  SmallVector<Operation *> created;
  SmallVector<Value> values;
  for (fsdp::GradientOp gradient : ops) {
    Value value = gradient.getValue();
    if (!placeable.contains(gradient)) {
      value = copyOf(gradient, place, builder);
      created.push_back(value.getDefiningOp());
    }
    values.push_back(value);
  }
  auto name = FlatSymbolRefAttr::get(layout);
  auto pack = fsdp::PackOp::create(builder, layout.getLoc(),
                                   fsdp::getFlatType(layout), name, values);
  auto reduce =
      fsdp::ReduceOp::create(builder, layout.getLoc(), name, pack.getResult());
  created.append({pack, reduce});
  // The next layout of this place is packed behind this reduction.
  last = reduce;
  for (Operation *op : created) {
    op->setAttr(FSDPDialect::kUnitAttr, layout.getUnitAttr());
    op->setAttr(FSDPDialect::kBackwardAttr, builder.getUnitAttr());
    if (fsdp::keepsF32(layout, symbols))
      op->setAttr(FSDPDialect::kKeepF32Attr, builder.getUnitAttr());
  }
  for (fsdp::GradientOp gradient : ops)
    gradient.erase();
}

} // namespace fsdpc::passes
