// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the scheduling problem of a function: buffers from the memory that ops
// use, windows from definitions and uses, and durations from what Durations.cpp
// knows of costs. The same code reads an unscheduled function, for the solver,
// and a scheduled one, for the verifier, so that both judge one problem.
#include "passes/schedule/ScheduleIR.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "passes/schedule/ScheduledOps.h"

#include "compiler/analysis/Slots.h"
#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Machine.h"
#include "compiler/dialects/fsdp/Offloads.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/dialects/nn/Build.h"
#include "runtime/abi/compressions.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::analysis;

namespace {

// Returns the value that owns the memory of `value`.
Value throughViews(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!nn::isView(op) && !isa<fsdp::ViewOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

using LayoutRefs = ArrayRef<FlatSymbolRefAttr>;

std::string labelOf(StringRef what, LayoutRefs layouts) {
  std::string label = (what + " of ").str();
  for (auto [index, layout] : llvm::enumerate(layouts))
    label += (index ? ", " : "") + layout.getValue().str();
  return label;
}

// The layouts of a gather or reduction, whole or split.
SmallVector<FlatSymbolRefAttr> layoutsOf(fsdp::TransferOpInterface transfer) {
  return cast<fsdp::LayoutUserOpInterface>(transfer.getOperation())
      .getLayoutRefs();
}

// Reads one function in three steps: ops and segments, collectives, then
// memory, which needs the numbers of both.
class Reader {
public:
  explicit Reader(func::FuncOp function)
      : function(function), module(function->getParentOfType<ModuleOp>()),
        symbols(module), options(fsdp::CompileOptions::of(module)) {
    for (auto layout : module.getOps<fsdp::LayoutOp>()) {
      if (fsdp::cutOver(layout, options) == fsdp::CutOver::Group)
        groupLayouts.insert(layout.getSymNameAttr());
      if (fsdp::isUnsummed(layout))
        unsummedLayouts.insert(layout.getSymNameAttr());
      if (fsdp::compressionOf(layout))
        compressedLayouts[layout.getSymNameAttr()] = layout;
      if (fsdp::wireOf(layout) != BlockType::None)
        blockLayouts[layout.getSymNameAttr()] = fsdp::wireOf(layout);
      if (layout.getOffloaded())
        offloadedLayouts[layout.getSymNameAttr()] = layout;
    }
  }

  FailureOr<ScheduleIR> run();

private:
  void readOps();
  void readGather(fsdp::TransferOpInterface gather);
  void addArrival(CollectiveOps ops, schedule::Collective c);
  void countBlocks(LayoutRefs layouts, ValueRange results,
                   CollectiveOps &ops) const;
  int64_t countCompressed(LayoutRefs layouts, ValueRange gradients,
                          CollectiveOps &ops) const;
  void countStored(LayoutRefs layouts, StringRef what,
                   CollectiveOps &ops) const;
  void readReduction(fsdp::TransferOpInterface reduction);
  void readOffload(fsdp::TransferOpInterface offload);
  void readFetch(fsdp::TransferOpInterface fetch);
  void readCollective(fsdp::TransferOpInterface transfer);
  LogicalResult readMemory();
  using ResultKey = std::pair<Operation *, unsigned>;
  DenseMap<ResultKey, int> collectivesByMemory() const;
  void readSlot(const Slot &slot, std::optional<int> id);
  void readActions();
  int positionOf(Operation *op) const { return positions.lookup(op); }

  func::FuncOp function;
  ModuleOp module;
  SymbolTable symbols;
  fsdp::CompileOptions options;
  // Layouts that are cut over the ranks of a group, and those that are gathered
  // in blocks.
  DenseSet<StringAttr> groupLayouts;
  // The layouts whose reduction does nothing.
  DenseSet<StringAttr> unsummedLayouts;
  DenseMap<StringAttr, BlockType> blockLayouts;
  // Those whose reductions send less than the gradients.
  DenseMap<StringAttr, fsdp::LayoutOp> compressedLayouts;
  DenseMap<StringAttr, fsdp::LayoutOp> offloadedLayouts;
  ScheduleIR ir;
  // The position of the mark with which the backward begins, or one past the
  // last op. Offloads end before it and fetches start after it, so that the
  // order of both holds wherever the schedule puts them.
  int turn = 0;
  // The position of an op, or of the gap that contains it.
  DenseMap<Operation *, int> positions;
  SmallVector<Operation *> inOrder;
};

void Reader::readOps() {
  Block &body = function.getBody().front();
  // A segment ends at its exit, at the next enter, or at the end. Empty ones
  // are left out.
  schedule::Segment open;
  bool isOpen = false;
  auto close = [&](int end) {
    if (isOpen && end > open.begin) {
      open.end = end;
      ir.problem.segments.push_back(open);
    }
    isOpen = false;
  };
  for (Operation &op : body) {
    inOrder.push_back(&op);
    int position = ir.ops.size();
    positions[&op] = position;
    // An op that is scheduled has the position of the op after it: the gap that
    // it stands in.
    if (isScheduled(&op))
      continue;
    ir.ops.push_back(&op);
    // The terminator has a position, for actions at the end, and no duration.
    if (&op == body.getTerminator())
      break;
    // Its duration comes from setDurations.
    ir.problem.ops.push_back({});
    if (auto enter = dyn_cast<fsdp::EnterOp>(op)) {
      close(position);
      open = {position, position, enter.getUnit().str(), enter.getBackward()};
      isOpen = true;
    } else if (isa<fsdp::ExitOp>(op)) {
      close(position + 1);
    }
  }
  close(ir.problem.numOps());
  auto enters = body.getOps<fsdp::EnterOp>();
  auto backward = llvm::find_if(
      enters, [](fsdp::EnterOp enter) { return enter.getBackward(); });
  turn = backward == enters.end() ? ir.problem.numOps() : positionOf(*backward);
}

// Elements of a collective's buffers, of the layouts that are not among
// `special` and of those that are.
std::pair<int64_t, int64_t> splitElements(const DenseSet<StringAttr> &special,
                                          LayoutRefs layouts,
                                          ValueRange buffers) {
  int64_t others = 0, found = 0;
  for (auto [layout, buffer] : llvm::zip_equal(layouts, buffers))
    (special.contains(layout.getAttr()) ? found : others) += elementsOf(buffer);
  return {others, found};
}

void Reader::readGather(fsdp::TransferOpInterface gather) {
  SmallVector<FlatSymbolRefAttr> layouts = layoutsOf(gather);
  ValueRange results = gather.getArrivals();
  CollectiveOps ops{gather, gather.getWait(), SmallVector<Value>(results), {}};
  auto [whole, groups] = splitElements(groupLayouts, layouts, results);
  int64_t width = nn::elementBytes(results[0].getType());
  ops.wholeBytes = whole * width;
  ops.groupBytes = groups * width;
  ops.elementBytes = width;
  // Secondary shards hold what has been converted.
  if (gather.readsSecondary()) {
    ops.secondaryRanks = options.reshardTo;
  } else {
    ops.castElements = whole;
    ops.castGroupElements = groups;
    countBlocks(layouts, results, ops);
    countStored(layouts, "parameter", ops);
  }
  schedule::Collective c;
  c.label = labelOf("all_gather", layouts);
  addArrival(std::move(ops), std::move(c));
}

// Adds a collective that brings `ops.results` into memory. The window: it must
// be done before the first op that reads any of them.
void Reader::addArrival(CollectiveOps ops, schedule::Collective c) {
  c.kind = schedule::CollectiveKind::Gather;
  c.channel = gatherChannel;
  // One behind the last op, if no reader lowers it.
  c.latest = ir.problem.numOps();
  c.lastUse = -1;
  for (Value result : ops.results) {
    for (Operation *user : usersOfMemory(result)) {
      c.latest = std::min(c.latest, positionOf(user));
      c.lastUse = std::max(*c.lastUse, positionOf(user));
    }
    for (Operation *user : result.getUsers())
      if (isa<fsdp::FreeOp>(user))
        ops.frees.push_back(user);
  }
  // An unused gather has no window. schedule-prefetch erases it before it reads
  // the problem, and verify-schedule refuses it.
  if (*c.lastUse < 0)
    return;
  ir.collectives.push_back(std::move(ops));
  ir.problem.collectives.push_back(std::move(c));
}

// Replaces the bytes of buffers that travel in blocks.
void Reader::countBlocks(LayoutRefs layouts, ValueRange results,
                         CollectiveOps &ops) const {
  for (auto [name, buffer] : llvm::zip_equal(layouts, results)) {
    auto wire = blockLayouts.find(name.getAttr());
    if (wire == blockLayouts.end())
      continue;
    int64_t elements = elementsOf(buffer);
    int64_t bytes = blockedBytes(elements, wire->second);
    ops.blockElements += elements;
    ops.blockedBytes += bytes;
    (groupLayouts.contains(name.getAttr()) ? ops.groupBytes : ops.wholeBytes) +=
        bytes - elements * ops.elementBytes;
  }
}

// Counts the layouts whose reduction is compressed, and returns their elements.
int64_t Reader::countCompressed(LayoutRefs layouts, ValueRange gradients,
                                CollectiveOps &ops) const {
  for (auto [name, gradient] : llvm::zip_equal(layouts, gradients)) {
    auto layout = compressedLayouts.lookup(name.getAttr());
    if (!layout)
      continue;
    Compression compression = fsdp::compressionOf(layout);
    const CompressionInfo &info = infoOf(compression);
    int64_t elements = elementsOf(gradient);
    ops.compressedElements += elements;
    ops.elementBytes = nn::elementBytes(gradient.getType());
    (info.traffic.sums ? ops.summedBytes : ops.toEachBytes) +=
        info.sentBytes(compression.amount, fsdp::shapesOf(layout, symbols));
    ops.compressionFlops += info.flops(elements, compression.amount);
  }
  return ops.compressedElements;
}

// Counts what each rank has offloaded of the layouts: gradients and masters are
// of f32, parameters without a master of the type that is computed in, and what
// is stored is bytes.
void Reader::countStored(LayoutRefs layouts, StringRef what,
                         CollectiveOps &ops) const {
  for (FlatSymbolRefAttr name : layouts) {
    auto layout = offloadedLayouts.lookup(name.getAttr());
    if (!layout || !fsdp::isOffloaded(layout, what))
      continue;
    int64_t width = layout.holdsBytes()                           ? 1
                    : what == "parameter" && layout.getNoMaster() ? 2
                                                                  : 4;
    (groupLayouts.contains(name.getAttr()) ? ops.storedGroupBytes
                                           : ops.storedBytes) +=
        width * layout.getElements();
  }
}

void Reader::readReduction(fsdp::TransferOpInterface reduction) {
  SmallVector<FlatSymbolRefAttr> layouts = layoutsOf(reduction);
  ValueRange gradients = reduction->getOperands();
  // The token has one user (verify-schedule's rule 'token').
  CollectiveOps ops{reduction, reduction.getWait(), {}, {}};
  auto [whole, groups] = splitElements(groupLayouts, layouts, gradients);
  whole -= countCompressed(layouts, gradients, ops);
  ops.wholeBytes = options.reducedBytes(whole);
  ops.groupBytes = options.reducedBytes(groups);
  if (options.reducesBlocks()) {
    ops.blockElements = whole + groups;
    ops.blockedBytes = blockedBytes(ops.blockElements, options.reducedAs());
  } else {
    ops.summedElements =
        whole + groups -
        splitElements(unsummedLayouts, layouts, gradients).second;
  }
  ops.elementBytes = nn::elementBytes(gradients[0].getType());
  ops.sumBytes = groups * int64_t(sizeof(float)); // groups hand on f32
  countStored(layouts, "gradient", ops);
  ops.continuesSums = options.accumulates();
  schedule::Collective c;
  c.kind = schedule::CollectiveKind::Reduce;
  c.channel = reduceChannel;
  c.latest = ir.problem.numOps();
  // The reduction may start after the last of its gradients is defined.
  for (Value gradient : gradients)
    if (Operation *op = gradient.getDefiningOp())
      c.earliest = std::max(c.earliest, positionOf(op) + 1);
  c.label = labelOf("reduce_scatter", layouts);
  ir.collectives.push_back(ops);
  ir.problem.collectives.push_back(c);
}

// Named after the unit that computes them, or reads them last.
std::string activationsOf(StringRef what, Operation *op) {
  auto unit =
      op->getAttrOfType<FlatSymbolRefAttr>(fsdp::FSDPDialect::kUnitAttr);
  return (what + " of " + (unit ? unit.getValue() : "no unit") + ".activations")
      .str();
}

// An offload starts after the last op that reads its values, so their memory
// ends with its wait.
void Reader::readOffload(fsdp::TransferOpInterface offload) {
  CollectiveOps ops{offload, offload.getWait(), {}, {}};
  schedule::Collective c;
  c.kind = schedule::CollectiveKind::Reduce;
  c.channel = reduceChannel;
  c.latest = turn;
  c.isLocal = true;
  for (Value value : offload->getOperands()) {
    ops.fileBytes += nn::tensorBytes(value.getType());
    if (Operation *op = value.getDefiningOp())
      c.earliest = std::max(c.earliest, positionOf(op) + 1);
    for (Operation *user : usersOfMemory(value))
      if (!isScheduled(user))
        c.earliest = std::max(c.earliest, positionOf(user) + 1);
  }
  c.label = activationsOf("offload", offload);
  ir.collectives.push_back(std::move(ops));
  ir.problem.collectives.push_back(std::move(c));
}

void Reader::readFetch(fsdp::TransferOpInterface fetch) {
  CollectiveOps ops{
      fetch, fetch.getWait(), SmallVector<Value>(fetch.getArrivals()), {}};
  for (Value result : ops.results)
    ops.fileBytes += nn::tensorBytes(result.getType());
  schedule::Collective c;
  c.earliest = turn + 1;
  c.isLocal = true;
  c.label = activationsOf("fetch", fetch);
  addArrival(std::move(ops), std::move(c));
}

void Reader::readCollective(fsdp::TransferOpInterface transfer) {
  switch (transfer.getTransferKind()) {
  case fsdp::TransferKind::Gather:
    return readGather(transfer);
  case fsdp::TransferKind::Reduce:
    return readReduction(transfer);
  case fsdp::TransferKind::Offload:
    return readOffload(transfer);
  case fsdp::TransferKind::Fetch:
    return readFetch(transfer);
  }
}

// The results that define the memory of collectives: a gather's own, which its
// start stands for, and what defines the operands of a reduction.
DenseMap<Reader::ResultKey, int> Reader::collectivesByMemory() const {
  DenseMap<ResultKey, int> ids;
  for (auto [id, ops] : llvm::enumerate(ir.collectives)) {
    for (unsigned result = 0; result < ops.results.size(); ++result)
      ids[{ops.first, result}] = id;
    if (ir.problem.collectives[id].kind == schedule::CollectiveKind::Reduce)
      for (Value operand : ops.first->getOperands())
        if (auto source = dyn_cast<OpResult>(throughViews(operand)))
          ids[{source.getOwner(), source.getResultNumber()}] = id;
  }
  return ids;
}

// A slot is a buffer of collective `id` if the schedule decides how long it
// lives, and a tensor otherwise.
void Reader::readSlot(const Slot &slot, std::optional<int> id) {
  schedule::Problem &problem = ir.problem;
  int64_t bytes = llvm::alignTo(slot.bytes, kSlotAlignment);
  Operation *begin = inOrder[slot.begin], *end = inOrder[slot.end];
  bool gathered =
      slot.kind == SlotKind::Gathered || slot.kind == SlotKind::Fetched;
  if (id && (gathered || isScheduled(end))) {
    // A gathered buffer lives from its start, which the schedule decides; a
    // reduction's buffer lives from the first op that writes it.
    int definition = gathered ? 0 : positionOf(begin);
    problem.collectives[*id].buffers.push_back(
        {bytes, kSlotAlignment, definition});
    return;
  }
  if (gathered)
    return; // nothing reads it, so it will be erased
  // If the slot ends at a free or a wait, the last op that reads it is the one
  // before that gap.
  int last = positionOf(end) - (isScheduled(end) ? 1 : 0);
  // The terminator is not an op of the problem, so a tensor that it reads dies
  // at the op before it.
  last = std::min(last, problem.numOps() - 1);
  // At least one position long, even if nothing reads it.
  problem.tensors.push_back({bytes, kSlotAlignment, positionOf(begin),
                             std::max(last, positionOf(begin)), std::nullopt,
                             labelOf(slot)});
}

// The buffers are the slots of plan-memory: what the solver packs is what lies
// in the arena.
LogicalResult Reader::readMemory() {
  FailureOr<ArenaSlots> arena = findArenaSlots(module);
  if (failed(arena))
    return failure();
  DenseMap<ResultKey, int> ids = collectivesByMemory();
  bool evaluates = function.getSymName() == fsdp::kEvaluate;
  for (const Slot &slot : evaluates ? arena->evaluate : arena->microbatch) {
    // A slot may hold several values. It belongs to a collective if one of them
    // does.
    std::optional<int> id;
    for (const SlotValue &value : slot.values)
      if (auto found = ids.find({value.op, value.result}); found != ids.end())
        id = found->second;
    readSlot(slot, id);
  }
  // Slots of @update take no part in the schedule, but the arena must hold them
  // too.
  if (!evaluates)
    ir.problem.later = intervalsOf(arena->update);
  return success();
}

void Reader::readActions() {
  DenseMap<Operation *, schedule::Action> actions;
  for (auto [index, ops] : llvm::enumerate(ir.collectives)) {
    if (!ops.wait)
      continue;
    int id = index;
    auto act = [&](Operation *op, schedule::ActionKind kind) {
      actions[op] = {positionOf(op), kind, id};
    };
    act(ops.first, schedule::ActionKind::Start);
    act(ops.wait, schedule::ActionKind::Wait);
    // Layouts that are gathered together are one collective of the problem,
    // which ends with its last free.
    if (!ops.frees.empty())
      act(*llvm::max_element(
              ops.frees,
              [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); }),
          schedule::ActionKind::Free);
  }
  for (Operation *op : inOrder)
    if (auto action = actions.find(op); action != actions.end())
      ir.schedule.actions.push_back(action->second);
}

FailureOr<ScheduleIR> Reader::run() {
  readOps();
  for (Operation *op : inOrder)
    if (auto transfer = dyn_cast<fsdp::TransferOpInterface>(op))
      readCollective(transfer);
  if (failed(readMemory()))
    return failure();
  readActions();
  setDurations(ir, fsdp::machineOf(module));
  return std::move(ir);
}

} // namespace

llvm::FailureOr<ScheduleIR> fsdpc::passes::readSchedule(func::FuncOp function) {
  return Reader(function).run();
}
