// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Groups ops into kernels in one pass over the function; see KernelGroups.h for
// the rules. The test for cycles would be the expensive part; GroupGraph keeps
// its cost near the number of ops.
#include "passes/kernels/KernelGroups.h"

#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/options/Options.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

KernelGrouping::KernelGrouping(func::FuncOp function, ModuleOp module)
    : symbols(module), onGpu(fsdp::CompileOptions::of(module).isCuda()) {
  Block &block = function.getBody().front();
  classify(block);
  buildGraph(block);
  for (Operation &op : block) {
    if (kindOf(&op) == OpKind::Boundary || isMovable(&op) ||
        pieces.contains(&op))
      continue;
    // The parts of such a concat are written in place by their producers, so no
    // kernel computes it. Its producers come before it and have their groups
    // already.
    if (auto concat = dyn_cast<nn::ConcatOp>(op);
        concat && !dequantises(&op) && isPlaced(concat))
      continue;
    place(&op);
  }
  // Sums over rows come last, when all groups that visit the rows are known.
  // The first that accepts the sums takes them.
  for (int group = 0, end = allGroups.size(); group < end; ++group)
    if (onlySumsRows(group))
      llvm::any_of(groupsOnSameRows(group),
                   [&](int other) { return merge(group, other); });
  if (onGpu)
    mergeOnGpu();
}

// Numbers the ops, and finds those that are pieces of memory or movable.
void KernelGrouping::classify(Block &block) {
  for (auto [position, op] : llvm::enumerate(block)) {
    positions[&op] = position;
    // The operands of a library call must exist in memory.
    auto readByBoundary = [](Operation *user) {
      return kindOf(user) == OpKind::Boundary;
    };
    // In program order, so that the answers for the operands are known.
    noteWeights(&op);
    if (isPieceOfMemory(&op)) {
      pieces.insert(&op);
      continue;
    }
    if (isFromNothing(&op))
      fromNothing.insert(&op);
    // A reshape to blocks of rows costs nothing inside a kernel. One of codes
    // costs less than their memory.
    bool toBlocks =
        isa<nn::ReshapeOp>(op) &&
        (dequantises(&op) || llvm::all_of(op.getUsers(), [](Operation *user) {
           return rowSumsOf(user).has_value();
         }));
    // Values without memory behind them may move too: computing a mask again
    // costs less than reading it.
    bool moves = kindOf(&op) == OpKind::Movable || toBlocks ||
                 (onGpu && isColumnOfRows(&op)) ||
                 (kindOf(&op) == OpKind::Map && fromNothing.contains(&op));
    if (!moves)
      continue;
    // The cap bounds how often code is repeated: a chain of n movable ops with
    // r readers is emitted r times.
    int64_t size = 1 + repeatedBy(&op);
    if (size <= kMostMovableOps && llvm::none_of(op.getUsers(), readByBoundary))
      movable[&op] = size;
  }
}

// Returns true for a reshape that only makes a column of one value per row,
// which is broadcast over the rows. On a GPU the kernel that computes the value
// then reads it too: the sums of a norm's weights join the norm's gradient.
bool KernelGrouping::isColumnOfRows(Operation *op) const {
  auto reshape = dyn_cast<nn::ReshapeOp>(op);
  if (!reshape)
    return false;
  SmallVector<int64_t> column(nn::shapeOf(reshape.getInput()));
  column.push_back(1);
  return nn::shapeOf(reshape.getResult()) == ArrayRef<int64_t>(column) &&
         llvm::all_of(op->getUsers(), [](Operation *user) {
           return isa<nn::BroadcastOp>(user);
         });
}

// Returns the number of movable ops behind the operands.
int64_t KernelGrouping::repeatedBy(Operation *op) const {
  int64_t count = 0;
  for (Value operand : op->getOperands())
    if (Operation *producer = operand.getDefiningOp())
      count += movable.lookup(producer);
  return count;
}

// Edges lead from producer to reader, and look through movable ops, which have
// no node of their own.
void KernelGrouping::buildGraph(Block &block) {
  graph.emplace(positions.size());
  for (Operation &op : block)
    if (!isMovable(&op))
      for (const Source &source : sourcesOf(&op))
        if (Operation *producer = source.value.getDefiningOp())
          graph->addEdge(position(producer), position(&op));
}

// Lets an op join the group of a producer, or starts a group.
void KernelGrouping::place(Operation *op) {
  OpKind kind = kindHere(op);
  llvm::SmallSetVector<int, 4> producers;
  // An op that is a kernel of its own has no candidates.
  if (kind != OpKind::Alone)
    for (const Source &source : sourcesOf(op))
      if (int group = groupOf(source.value.getDefiningOp()); group >= 0)
        producers.insert(group);
  SmallVector<int> candidates = producers.takeVector();
  // The latest group comes first. It is the least likely to close a cycle,
  // since the fewest ops run between it and the op.
  llvm::sort(candidates, [&](int a, int b) {
    return position(allGroups[a].ops.back()) >
           position(allGroups[b].ops.back());
  });
  const int *joined =
      llvm::find_if(candidates, [&](int group) { return join(op, group); });
  if (joined != candidates.end()) {
    // The op connects the groups of its other producers to this one, so their
    // values need not pass through memory if they merge.
    for (int other : candidates)
      merge(other, *joined);
    return;
  }
  groupIndex[op] = allGroups.size();
  std::optional<RowSums> sums = rowSumsOf(op);
  allGroups.push_back({{op},
                       1 + repeatedBy(op),
                       domainOf(op),
                       kind == OpKind::Alone,
                       sums ? sums->rowsPerBlock : 0,
                       weightUnitOf(op).value_or(StringAttr())});
}

// Returns true if the value of the op is a part of its operand's memory, and
// that memory exists. The operand must not be movable, since such a value is
// never stored.
bool KernelGrouping::isPieceOfMemory(Operation *op) const {
  auto slice = dyn_cast<nn::SliceOp>(op);
  return slice && nn::contiguousOffset(slice) &&
         !movable.contains(slice.getInput().getDefiningOp());
}

// Returns true if the operands can be written directly into the result: each is
// made for it only, by an op that owns the memory of its results.
bool KernelGrouping::isPlaced(nn::ConcatOp concat) const {
  return nn::joinsPieces(concat) &&
         llvm::all_of(concat.getInputs(), [&](Value operand) {
           Operation *producer = operand.getDefiningOp();
           if (!producer || !operand.hasOneUse())
             return false;
           auto call = dyn_cast<nn::LibraryCallOpInterface>(producer);
           return groupOf(producer) >= 0 || (call && call.writesPieces());
         });
}

// Returns true if the value can be recomputed without reading memory
// (constants, iotas, and what follows from them).
bool KernelGrouping::isFromNothing(Operation *op) const {
  if (auto constant = dyn_cast<nn::ConstantOp>(op))
    return isa<SplatElementsAttr>(constant.getValue());
  if (isa<nn::IotaOp>(op))
    return true;
  OpKind kind = kindOf(op);
  return (kind == OpKind::Map || kind == OpKind::Movable) &&
         op->getNumOperands() > 0 &&
         llvm::all_of(op->getOperands(), [&](Value operand) {
           return operand.getDefiningOp() &&
                  fromNothing.contains(operand.getDefiningOp());
         });
}

// Notes what depends on weights and constants alone, and whether stored
// parameters are among them.
void KernelGrouping::noteWeights(Operation *op) {
  if (auto view = dyn_cast<fsdp::ViewOp>(op)) {
    ofWeights[op] = getElementTypeOrSelf(view.getFlat()).isUnsignedInteger(8);
    return;
  }
  if (op->getNumOperands() == 0 ||
      (kindOf(op) == OpKind::Boundary && !isa<nn::ReshapeOp>(op)))
    return;
  bool readsStored = false;
  for (Value operand : op->getOperands()) {
    Operation *producer = operand.getDefiningOp();
    if (!producer)
      return;
    auto known = ofWeights.find(producer);
    if (known != ofWeights.end())
      readsStored |= known->second;
    else if (!isa<nn::ConstantOp>(producer) && !fromNothing.contains(producer))
      return;
  }
  ofWeights[op] = readsStored;
}

OpKind KernelGrouping::kindHere(Operation *op) const {
  return isa<nn::ConcatOp>(op) && dequantises(op) ? OpKind::Index : kindOf(op);
}

int KernelGrouping::groupOf(Operation *op) const {
  auto found = groupIndex.find(op);
  return found == groupIndex.end() ? -1 : found->second;
}

// Follows movable ops up to values that are stored or grouped. The flags record
// how the path reads them: an element may be used once per index, or many times
// (broadcast), or at another index.
SmallVector<KernelGrouping::Source>
KernelGrouping::sourcesOf(Operation *op) const {
  SmallVector<Source> sources, worklist;
  for (Value operand : op->getOperands())
    worklist.push_back({operand, false, false});
  while (!worklist.empty()) {
    Source source = worklist.pop_back_val();
    Operation *producer = source.value.getDefiningOp();
    if (!producer || !movable.contains(producer)) {
      sources.push_back(source);
      continue;
    }
    bool broadcast = isa<nn::BroadcastOp>(producer);
    bool inPlace =
        broadcast || (isa<nn::ReshapeOp>(producer) && !dequantises(producer));
    for (Value operand : producer->getOperands())
      worklist.push_back(
          {operand, source.indexed || !inPlace, source.broadcast || broadcast});
  }
  return sources;
}

// The recursion through movable ops is bounded by kMostMovableOps.
bool KernelGrouping::usedOutside(Value value, int group,
                                 Operation *besides) const {
  return llvm::any_of(value.getUsers(), [&](Operation *user) {
    if (user == besides || groupOf(user) == group)
      return false;
    if (movable.contains(user))
      return usedOutside(user->getResult(0), group, besides);
    return true;
  });
}

bool KernelGrouping::staysInside(int group, Operation *besides) const {
  return llvm::all_of(allGroups[group].ops, [&](Operation *op) {
    return llvm::none_of(op->getResults(), [&](Value result) {
      return usedOutside(result, group, besides);
    });
  });
}

SmallVector<Value> KernelGrouping::outputsOf(int group) const {
  SmallVector<Value> outputs;
  for (Operation *op : allGroups[group].ops)
    for (Value result : op->getResults())
      if (usedOutside(result, group, nullptr))
        outputs.push_back(result);
  return outputs;
}

std::optional<Domain> KernelGrouping::mergedDomain(Operation *op,
                                                   int index) const {
  // The rules are ordered by the kind of the group: sums over rows, groups that
  // reduce, reductions that join maps, and maps.
  const KernelGroup &group = allGroups[index];
  Domain own = domainOf(op);
  OpKind kind = kindHere(op);
  ArrayRef<int64_t> shape = group.domain.shape;
  bool indexed = kind == OpKind::Index;
  bool broadcast = false;
  for (const Source &source : sourcesOf(op))
    if (groupOf(source.value.getDefiningOp()) == index) {
      indexed |= source.indexed;
      broadcast |= source.broadcast;
    }
  // Rows can be added up if the kernel visits them one by one, in equal blocks.
  std::optional<RowSums> sums = rowSumsOf(op);
  int64_t rowsPerBlock = sums ? sums->rowsPerBlock : group.rowsPerBlock;
  if (rowsPerBlock) {
    if ((sums && ArrayRef<int64_t>(own.shape) != shape) ||
        (group.rowsPerBlock && group.rowsPerBlock != rowsPerBlock))
      return std::nullopt;
    for (const Domain &domain : {own, group.domain})
      if (domain.reduces() && !domain.reducesRows())
        return std::nullopt;
  }

  // An element picked or looked up may lie anywhere: its source is in memory.
  auto fusible = dyn_cast<nn::FusibleOpInterface>(op);
  if (fusible && fusible.readsAnyElement(0) &&
      groupOf(op->getOperand(0).getDefiningOp()) == index)
    return std::nullopt;

  // A group that reduces visits its domain once. An op fits if it reads values
  // of the domain at its own index, or one value per reduction.
  if (group.domain.reduces()) {
    if (indexed)
      return std::nullopt;
    // Two reductions share their loops if they have the same domain and axes.
    if (own.reduces())
      return own.shape == shape && own.axes == group.domain.axes
                 ? std::optional(group.domain)
                 : std::nullopt;
    // A map over the whole domain may follow only a reduction of the innermost
    // axis, because a row is then still at hand.
    bool whole = ArrayRef<int64_t>(own.shape) == shape;
    if ((whole && group.domain.reducesInnermost()) ||
        group.domain.isReducedShape(own.shape))
      return group.domain;
    return std::nullopt;
  }

  bool sameShape = ArrayRef<int64_t>(own.shape) == shape;
  // A reduction takes over a group of maps, whose values it computes on the
  // way. Along another axis than the innermost these cannot be stored too.
  if (own.reduces()) {
    bool fits = sameShape && !indexed && !broadcast &&
                (own.reducesInnermost() || staysInside(index, op));
    return fits ? std::optional(own) : std::nullopt;
  }
  if (!indexed && !broadcast)
    return sameShape ? std::optional(own) : std::nullopt;
  // The values of the group are computed where they are read, each once.
  if (broadcast || !staysInside(index, op))
    return std::nullopt;
  return own;
}

// Returns the unit whose weights the op reads, null if it reads none, and
// nullopt if it reads those of several units.
std::optional<StringAttr> KernelGrouping::weightUnitOf(Operation *op) const {
  StringAttr unit;
  for (const Source &source : sourcesOf(op)) {
    Value value = source.value;
    while (value.getDefiningOp() && nn::isView(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    auto view = value.getDefiningOp<fsdp::ViewOp>();
    auto flat = view ? view.getFlat().getDefiningOp<fsdp::FlatOp>() : nullptr;
    if (!flat)
      continue;
    auto layout = symbols.lookup<fsdp::LayoutOp>(flat.getLayout());
    StringAttr owner = layout.getUnitAttr().getAttr();
    if (unit && unit != owner)
      return std::nullopt;
    unit = owner;
  }
  return unit;
}

// Unit and direction decide when a kernel runs relative to collectives, so they
// must be the same for all its ops.
bool KernelGrouping::sameOwner(Operation *a, Operation *b) const {
  return llvm::all_of(
      ArrayRef<StringRef>{fsdp::FSDPDialect::kUnitAttr,
                          fsdp::FSDPDialect::kBackwardAttr},
      [&](StringRef name) { return a->getAttr(name) == b->getAttr(name); });
}

bool KernelGrouping::join(Operation *op, int index) {
  KernelGroup &group = allGroups[index];
  std::optional<StringAttr> unit = weightUnitOf(op);
  int64_t size = group.size + 1 + repeatedBy(op);
  if (size > kMostOps || !sameOwner(group.ops.front(), op) || group.closed ||
      !unit || (*unit && group.weightUnit && *unit != group.weightUnit))
    return false;
  std::optional<Domain> domain = mergedDomain(op, index);
  // The cycle check comes last, since it contracts the graph when it succeeds.
  if (!domain || !graph->merge(position(group.ops.front()), position(op)))
    return false;
  group.domain = *domain;
  group.ops.push_back(op);
  group.size = size;
  if (std::optional<RowSums> sums = rowSumsOf(op))
    group.rowsPerBlock = sums->rowsPerBlock;
  if (*unit)
    group.weightUnit = *unit;
  groupIndex[op] = index;
  return true;
}
