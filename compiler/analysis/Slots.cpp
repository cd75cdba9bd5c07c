// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the slots of a function: values that share memory, and the live range
// of each slot. Every result starts with a slot of its own; accumulators,
// packs, concats and ties then move slots into one another. The order matters:
// ties come last, because only then are all live ranges known.
#include "compiler/analysis/Slots.h"

#include "compiler/dialects/fsdp/Offloads.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/dialects/fsdp/Tokens.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/dialects/nn/Strided.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;

// A start yields a token, and its tensors are the results of the wait. It is
// the start that fixes their memory, so it carries their offsets.
unsigned fsdpc::analysis::offsetCount(Operation *op) {
  if (auto start = dyn_cast<fsdp::AllGatherStartOp>(op))
    return start.getLayouts().size();
  if (auto start = dyn_cast<fsdp::FetchStartOp>(op))
    return fsdp::offloadedValues(start.getHeld())->size();
  return op->getNumResults();
}

namespace {

// The memory of a value: a node (a slot in the making), and an offset in it.
struct Place {
  int node = -1;
  int64_t offset = 0;
};

// Positions count the ops of the function from `firstPosition` on.
class SlotFinder {
public:
  SlotFinder(func::FuncOp function, int firstPosition,
             const SlotOptions &options)
      : function(function), position(firstPosition), options(options) {}

  FailureOr<SmallVector<Slot>> run();

private:
  // Makes a slot for one result of `op`, alive at the current position. Later
  // uses extend it.
  int newNode(Operation *op, unsigned result, int64_t bytes, SlotKind kind) {
    Slot slot;
    slot.kind = kind;
    slot.bytes = bytes;
    slot.begin = slot.end = position;
    slot.values.push_back({op, result, 0});
    slots.push_back(slot);
    parent.push_back({static_cast<int>(slots.size()) - 1, 0});
    return slots.size() - 1;
  }
  // The two walks of run() call `define` and `use` for each op.
  void define(Operation *op);
  fsdp::LayoutOp layoutOf(fsdp::PackOp pack) {
    return symbols.lookupNearestSymbolFrom<fsdp::LayoutOp>(
        pack, pack.getLayoutAttr());
  }
  void gather(Operation *op, ValueRange results);
  void fetch(Operation *op, ValueRange results);
  void use(Operation *op);
  LogicalResult verifyOffloaded(Operation *op);
  LogicalResult accumulate(nn::LibraryCallOpInterface call);
  LogicalResult place(fsdp::PackOp pack);
  LogicalResult place(nn::ConcatOp concat);
  // Returns true if the value has a slot to itself that nothing else has
  // claimed.
  bool isFree(Value value) const {
    Place place = placeOf(value);
    return place.node >= 0 && place.offset == 0 &&
           slots[place.node].kind == SlotKind::Activation &&
           nn::tensorBytes(value.getType()) == slots[place.node].bytes;
  }
  // Gives a launch's results the memory of operands that end at the launch.
  void tie(nn::LaunchOp launch);
  // Follows nodes that have moved into others.
  Place resolve(Place place) const {
    while (place.node >= 0 && parent[place.node].node != place.node) {
      place.offset += parent[place.node].offset;
      place.node = parent[place.node].node;
    }
    return place;
  }
  // Returns where the value lies now, or node -1 if it has no memory in the
  // arena.
  Place placeOf(Value value) const {
    auto found = places.find(value);
    return found == places.end() ? Place() : resolve(found->second);
  }
  // Moves a node's slot into another's, at an offset.
  void moveInto(int node, int target, int64_t offset);

  func::FuncOp function;
  int position;
  const SlotOptions &options;
  SymbolTableCollection symbols;
  SmallVector<Slot> slots;
  // The place of each node: itself at offset 0, or where it has moved.
  SmallVector<Place> parent;
  DenseMap<Value, Place> places;
};

// Afterwards the source slot has no values, and run() drops it. Its users find
// the target through `parent`, as in a union-find without path compression:
// chains are as long as ties, packs and concats nest.
void SlotFinder::moveInto(int node, int target, int64_t offset) {
  Slot &from = slots[node], &into = slots[target];
  into.begin = std::min(into.begin, from.begin);
  into.end = std::max(into.end, from.end);
  for (SlotValue value : from.values)
    into.values.push_back({value.op, value.result, value.offset + offset});
  from.values.clear();
  parent[node] = {target, offset};
}

void SlotFinder::gather(Operation *op, ValueRange results) {
  for (auto [index, result] : llvm::enumerate(results)) {
    int node = newNode(op, index, nn::tensorBytes(result.getType()),
                       SlotKind::Gathered);
    // Shards have padding, so a gather may write more than its result.
    slots[node].slack = options.gatherPadding;
    slots[node].bytes += slots[node].slack;
    places[result] = {node, 0};
  }
}

// Nothing but the values is written: a file has no shards.
void SlotFinder::fetch(Operation *op, ValueRange results) {
  for (auto [index, result] : llvm::enumerate(results))
    places[result] = {newNode(op, index, nn::tensorBytes(result.getType()),
                              SlotKind::Fetched),
                      0};
}

// The file takes nothing that other memory holds anyway.
LogicalResult SlotFinder::verifyOffloaded(Operation *op) {
  for (Value value : op->getOperands())
    if (placeOf(value).node < 0)
      return op->emitOpError("offloads a value of type ")
             << value.getType() << " that does not lie in the arena";
  return success();
}

// Gives memory to an op's results, or finds whose memory they are in.
void SlotFinder::define(Operation *op) {
  if (op->hasTrait<nn::OutsideArena>() || fsdp::awaitedToken(op))
    return;
  if (auto view = dyn_cast<nn::ViewOpInterface>(op)) {
    Place place = placeOf(view.getViewSource());
    place.offset +=
        view.getViewOffset() * nn::elementBytes(op->getResult(0).getType());
    places[op->getResult(0)] = place;
    return;
  }
  // A start yields a token only; the results of its wait are the tensors.
  if (auto transfer = dyn_cast<fsdp::TransferOpInterface>(op)) {
    if (transfer.getTransferKind() == fsdp::TransferKind::Gather)
      return gather(op, transfer.getArrivals());
    if (transfer.getTransferKind() == fsdp::TransferKind::Fetch)
      return fetch(op, transfer.getArrivals());
  }
  auto pack = dyn_cast<fsdp::PackOp>(op);
  SlotKind kind = pack || isa<fsdp::WholeGradientOp>(op) ? SlotKind::Gradient
                                                         : SlotKind::Activation;
  // The start of a reduction yields a token only.
  for (OpResult result : op->getResults())
    if (isa<RankedTensorType>(result.getType()))
      places[result] = {newNode(op, result.getResultNumber(),
                                nn::tensorBytes(result.getType()), kind),
                        0};
  if (pack && fsdp::isUnsummed(layoutOf(pack)))
    slots.back().layout = pack.getLayoutAttr();
}

// Extends the live ranges of the operands to this op. The operands of a start
// (a reduction's gradients, an offload's values) are in use until the wait.
void SlotFinder::use(Operation *op) {
  auto extend = [&](Value value) {
    if (Place place = placeOf(value); place.node >= 0)
      slots[place.node].end = std::max(slots[place.node].end, position);
  };
  llvm::for_each(op->getOperands(), extend);
  for (Value operand : op->getOperands())
    if (isa<fsdp::TokenType>(operand.getType()))
      llvm::for_each(operand.getDefiningOp()->getOperands(), extend);
}

// A product that accumulates overwrites an operand with its result, so both are
// one slot. The operand must not be a gathered weight or a gradient's pack, and
// nothing may read it afterwards.
LogicalResult SlotFinder::accumulate(nn::LibraryCallOpInterface call) {
  Value overwritten = call.getOverwritten();
  Place into = placeOf(overwritten);
  if (into.node < 0 || slots[into.node].kind != SlotKind::Activation)
    return call->emitOpError("accumulates into memory that it does not own; "
                             "copy the accumulator with nn.copy");
  for (Operation *user : overwritten.getUsers()) {
    if (user == call || user->isBeforeInBlock(call))
      continue;
    auto diagnostic =
        call->emitOpError("overwrites an accumulator that is read afterwards; "
                          "copy it with nn.copy");
    diagnostic.attachNote(user->getLoc()) << "read here";
    return diagnostic;
  }
  moveInto(placeOf(call->getResult(0)).node, into.node, into.offset);
  return success();
}

// The gradients that a pack holds are computed in place: each becomes a part of
// the pack's slot, at the member's offset, and no copy is needed.
LogicalResult SlotFinder::place(fsdp::PackOp pack) {
  Place target = placeOf(pack.getResult());
  int64_t size = nn::elementBytes(pack.getType());
  auto members = layoutOf(pack).getMembers().getAsRange<fsdp::MemberAttr>();
  for (auto [value, member] : llvm::zip_equal(pack.getValues(), members)) {
    if (!isFree(value))
      return pack.emitOpError("cannot hold the gradient of '")
             << member.getParameter().getValue()
             << "', which already has a place in another buffer; copy it with "
                "nn.copy";
    moveInto(placeOf(value).node, target.node, member.getOffset() * size);
  }
  return success();
}

// The operands of a concat are computed in place, one behind the other. If the
// concat is strided, they interleave, and their strides say where each begins.
LogicalResult SlotFinder::place(nn::ConcatOp concat) {
  Place target = placeOf(concat.getResult());
  int64_t begin = nn::stridesOf(concat.getResult())->offset;
  int64_t offset = 0;
  for (Value value : concat.getInputs()) {
    if (!isFree(value))
      return concat.emitOpError(
          "cannot hold an operand that already has a place in another buffer; "
          "copy it with nn.copy");
    if (nn::isStrided(concat))
      offset = (nn::stridesOf(value)->offset - begin) *
               nn::elementBytes(value.getType());
    moveInto(placeOf(value).node, target.node, offset);
    offset += nn::tensorBytes(value.getType());
  }
  return success();
}

void SlotFinder::tie(nn::LaunchOp launch) {
  std::optional<ArrayRef<int64_t>> tied = launch.getTied();
  if (!tied)
    return;
  for (auto [result, index] : llvm::zip_equal(launch->getResults(), *tied)) {
    if (index < 0)
      continue;
    Value operand = launch->getOperand(index);
    Place from = placeOf(result), into = placeOf(operand);
    // The operand must be a complete slot that ends here.
    int64_t bytes = nn::tensorBytes(result.getType());
    if (into.node < 0 || into.offset != 0 || into.node == from.node ||
        slots[into.node].kind != SlotKind::Activation ||
        slots[into.node].bytes != bytes || slots[into.node].end != position ||
        !options.useTie(result, operand))
      continue;
    // A tie shows in a plan by equal offsets, which mean nothing where one of
    // both is not in the arena.
    if (slots[from.node].layout)
      continue;
    // A member of a pack takes its operand along, unless that makes the other
    // members exist much longer than they are needed.
    if (slots[from.node].bytes == bytes)
      moveInto(from.node, into.node, 0);
    else if (slots[from.node].bytes <= 2 * bytes)
      moveInto(into.node, from.node, from.offset);
  }
}

// Checks that a value without memory of its own can be where it must, and that
// only ops that accept strides read it.
static LogicalResult verifyStrides(Operation *op) {
  auto slice = dyn_cast<nn::SliceOp>(op);
  if (slice && !nn::sliceOffset(slice))
    return slice.emitOpError("is not contiguous in its operand, so it cannot "
                             "be a view; run outline-kernels first");
  if (nn::isStrided(op) &&
      (!nn::stridesOf(op->getOperand(0)) || !nn::stridesOf(op->getResult(0))))
    return op->emitOpError("has attribute '")
           << nn::kStridedAttr
           << "', but strides cannot describe where its elements lie; remove "
              "the attribute and run outline-kernels again";
  auto liesWithStrides = [](Operation *op) {
    auto call = dyn_cast<nn::LibraryCallOpInterface>(op);
    return nn::isStrided(op) || (call && call.writesStrides());
  };
  if (liesWithStrides(op))
    return success();
  for (Value operand : op->getOperands()) {
    Operation *producer = operand.getDefiningOp();
    if (!producer || !liesWithStrides(producer))
      continue;
    std::optional<nn::Strides> strides = nn::stridesOf(operand);
    if (!strides ||
        strides->strides != nn::denseStrides(nn::shapeOf(operand)).strides)
      return op->emitOpError(
                 "does not support strided operands, but the operand of type ")
             << operand.getType() << " is strided";
  }
  return success();
}

FailureOr<SmallVector<Slot>> SlotFinder::run() {
  int first = position;
  for (Operation &op : function.getBody().front()) {
    if (failed(verifyStrides(&op)))
      return failure();
    define(&op);
    if (fsdp::isTransfer(&op, fsdp::TransferKind::Offload) &&
        failed(verifyOffloaded(&op)))
      return failure();
    auto call = dyn_cast<nn::LibraryCallOpInterface>(op);
    if (call && call.getOverwritten() && failed(accumulate(call)))
      return failure();
    ++position;
  }
  // A second walk extends the ranges. It needs the nodes of the first, since an
  // accumulation gives an operand the node of an earlier op.
  position = first;
  for (Operation &op : function.getBody().front()) {
    use(&op);
    ++position;
  }
  // Packs and concats take their members before ties are considered, since
  // their memory is not theirs to give away. All live ranges are known now, so
  // a tie sees where its operand ends.
  for (Operation &op : function.getBody().front()) {
    auto pack = dyn_cast<fsdp::PackOp>(op);
    auto concat = dyn_cast<nn::ConcatOp>(op);
    if ((pack && failed(place(pack))) || (concat && failed(place(concat))))
      return failure();
  }
  position = first;
  for (Operation &op : function.getBody().front()) {
    if (auto launch = dyn_cast<nn::LaunchOp>(op))
      tie(launch);
    ++position;
  }
  llvm::erase_if(slots, [](const Slot &slot) { return slot.values.empty(); });
  return std::move(slots);
}

} // namespace

FailureOr<SmallVector<Slot>>
fsdpc::analysis::findSlots(func::FuncOp function, int firstPosition,
                           const SlotOptions &options) {
  return SlotFinder(function, firstPosition, options).run();
}

SmallVector<Slot> fsdpc::analysis::takeOfLayouts(SmallVectorImpl<Slot> &slots) {
  SmallVector<Slot> taken;
  for (Slot &slot : slots)
    if (slot.layout)
      taken.push_back(slot);
  llvm::erase_if(slots, [](const Slot &slot) { return bool(slot.layout); });
  return taken;
}

// Names a slot by its first value, the one that opened it.
std::string fsdpc::analysis::labelOf(const Slot &slot) {
  const SlotValue &value = slot.values.front();
  auto nameOf = [](Attribute symbol) {
    return cast<FlatSymbolRefAttr>(symbol).getValue().str();
  };
  if (fsdp::isTransfer(value.op, fsdp::TransferKind::Gather))
    return "all_gather of " + nameOf(cast<fsdp::LayoutUserOpInterface>(value.op)
                                         .getLayoutRefs()[value.result]);
  if (auto pack = dyn_cast<fsdp::PackOp>(value.op))
    return "gradients of " + nameOf(pack.getLayoutAttr());
  if (auto whole = dyn_cast<fsdp::WholeGradientOp>(value.op))
    return "whole gradient of " + nameOf(whole.getLayoutAttr());
  auto unit =
      value.op->getAttrOfType<FlatSymbolRefAttr>(fsdp::FSDPDialect::kUnitAttr);
  return unit ? "activations of " + nameOf(unit) : "activations";
}

std::vector<schedule::Interval>
fsdpc::analysis::intervalsOf(ArrayRef<Slot> slots) {
  std::vector<schedule::Interval> intervals;
  for (const Slot &slot : slots) {
    schedule::Interval interval;
    // The padding up to the next slot's offset counts as its own.
    interval.bytes = llvm::alignTo(slot.bytes, kSlotAlignment);
    interval.alignment = kSlotAlignment;
    interval.begin = slot.begin;
    interval.end = slot.end;
    interval.label = labelOf(slot);
    intervals.push_back(interval);
  }
  return intervals;
}
