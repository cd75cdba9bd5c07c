// Which ops form a kernel.
#include "passes/kernels/KernelGroups.h"

using namespace mlir;
using namespace fsdpc;

KernelGrouping::KernelGrouping(func::FuncOp function, ModuleOp module)
    : module(module) {
  Block &block = function.getBody().front();
  for (auto [position, op] : llvm::enumerate(block)) {
    positions[&op] = position;
    // What a library call reads must exist in memory.
    auto readByBoundary = [](Operation *user) {
      return kindOf(user) == OpKind::Boundary;
    };
    if (isPieceOfMemory(&op)) {
      pieces.insert(&op);
      continue;
    }
    if (isFromNothing(&op))
      fromNothing.insert(&op);
    if ((kindOf(&op) == OpKind::Movable ||
         (kindOf(&op) == OpKind::Map && fromNothing.contains(&op))) &&
        llvm::none_of(op.getUsers(), readByBoundary))
      movable.insert(&op);
  }
  for (Operation &op : block) {
    OpKind kind = kindOf(&op);
    if (kind == OpKind::Boundary || movable.contains(&op) ||
        pieces.contains(&op))
      continue;
    if (auto concat = dyn_cast<nn::ConcatOp>(op); concat && isPlaced(concat))
      continue;
    SmallVector<int> candidates;
    if (kind != OpKind::Alone)
      for (const Source &source : sourcesOf(&op))
        if (int group = groupOf(source.value.getDefiningOp()); group >= 0)
          candidates.push_back(group);
    llvm::sort(candidates, [&](int a, int b) {
      return position(allGroups[a].ops.back()) >
             position(allGroups[b].ops.back());
    });
    bool joined =
        llvm::any_of(candidates, [&](int group) { return join(&op, group); });
    if (joined)
      continue;
    groupIndex[&op] = allGroups.size();
    allGroups.push_back({{&op},
                         domainOf(&op),
                         kind == OpKind::Alone,
                         weightUnitOf(&op).value_or(StringAttr())});
  }
}

// Whether the op's value lies in its operand's memory, which exists.
bool KernelGrouping::isPieceOfMemory(Operation *op) const {
  auto slice = dyn_cast<nn::SliceOp>(op);
  return slice && nn::contiguousOffset(slice) &&
         !movable.contains(slice.getInput().getDefiningOp());
}

// Whether operands can be written where they lie in the result: each is made
// for it alone, by an op that owns the memory of its results.
bool KernelGrouping::isPlaced(nn::ConcatOp concat) const {
  return nn::joinsPieces(concat) &&
         llvm::all_of(concat.getInputs(), [&](Value operand) {
           Operation *producer = operand.getDefiningOp();
           return producer && operand.hasOneUse() &&
                  (groupOf(producer) >= 0 || isa<nn::MatmulOp>(producer));
         });
}

// Whether the op's value needs no memory to be read: indices, numbers, and what
// is computed from them.
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

int KernelGrouping::groupOf(Operation *op) const {
  auto found = groupIndex.find(op);
  return found == groupIndex.end() ? -1 : found->second;
}

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
    for (Value operand : producer->getOperands())
      worklist.push_back({operand, source.indexed || !broadcast,
                          source.broadcast || broadcast});
  }
  return sources;
}

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
  const KernelGroup &group = allGroups[index];
  Domain own = domainOf(op);
  OpKind kind = kindOf(op);
  ArrayRef<int64_t> shape = group.domain.shape;
  bool indexed = kind == OpKind::Index;
  bool broadcast = false;
  for (const Source &source : sourcesOf(op))
    if (groupOf(source.value.getDefiningOp()) == index) {
      indexed |= source.indexed;
      broadcast |= source.broadcast;
    }
  // An element picked or looked up may lie anywhere: its source is in memory.
  bool anywhere = isa<nn::PickOp, nn::EmbeddingOp, nn::RotaryOp>(op);
  if (anywhere && groupOf(op->getOperand(0).getDefiningOp()) == index)
    return std::nullopt;

  if (group.domain.reduces()) {
    if (indexed)
      return std::nullopt;
    if (own.reduces())
      return own.shape == shape && own.axes == group.domain.axes
                 ? std::optional(group.domain)
                 : std::nullopt;
    bool whole = ArrayRef<int64_t>(own.shape) == shape;
    if ((whole && group.domain.reducesInnermost()) ||
        group.domain.isReducedShape(own.shape))
      return group.domain;
    return std::nullopt;
  }

  bool sameShape = ArrayRef<int64_t>(own.shape) == shape;
  if (own.reduces()) {
    bool fits = sameShape && !indexed && !broadcast &&
                (own.reducesInnermost() || staysInside(index, op));
    return fits ? std::optional(own) : std::nullopt;
  }
  if (!indexed && !broadcast)
    return sameShape ? std::optional(own) : std::nullopt;
  // The group's values are computed where they are read, each once.
  if (broadcast || !staysInside(index, op))
    return std::nullopt;
  return own;
}

// The unit whose weights the op reads: null for none, nothing for several.
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
    auto layout = module.lookupSymbol<fsdp::LayoutOp>(flat.getLayoutAttr());
    StringAttr owner = layout.getUnitAttr().getAttr();
    if (unit && unit != owner)
      return std::nullopt;
    unit = owner;
  }
  return unit;
}

// The position before which nothing can depend on the group: dependences lead
// back in program order, but a group that reaches across leads forward again.
int KernelGrouping::firstThatMayFollow(int group) const {
  int first = position(allGroups[group].ops.front());
  for (const KernelGroup &other : llvm::reverse(allGroups))
    if (position(other.ops.back()) >= first)
      first = std::min(first, position(other.ops.front()));
  return first;
}

bool KernelGrouping::wouldCycle(Operation *op, int group) const {
  int first = firstThatMayFollow(group);
  SmallVector<Operation *> worklist;
  DenseSet<Operation *> visited;
  auto visit = [&](Operation *producer) {
    if (producer && visited.insert(producer).second)
      worklist.push_back(producer);
  };
  for (const Source &source : sourcesOf(op))
    if (Operation *producer = source.value.getDefiningOp();
        producer && groupOf(producer) != group)
      visit(producer);
  while (!worklist.empty()) {
    Operation *producer = worklist.pop_back_val();
    int other = groupOf(producer);
    if (other == group)
      return true;
    // A group runs as a whole, after everything that any of its ops reads.
    ArrayRef<Operation *> together =
        other < 0 ? ArrayRef<Operation *>(producer) : allGroups[other].ops;
    if (position(together.back()) < first)
      continue;
    for (Operation *member : together)
      for (const Source &source : sourcesOf(member))
        visit(source.value.getDefiningOp());
  }
  return false;
}

bool KernelGrouping::join(Operation *op, int index) {
  KernelGroup &group = allGroups[index];
  Operation *sample = group.ops.front();
  for (StringRef name :
       {fsdp::FSDPDialect::kUnitAttr, fsdp::FSDPDialect::kBackwardAttr})
    if (sample->getAttr(name) != op->getAttr(name))
      return false;
  std::optional<StringAttr> unit = weightUnitOf(op);
  if (group.closed || !unit ||
      (*unit && group.weightUnit && *unit != group.weightUnit))
    return false;
  std::optional<Domain> domain = mergedDomain(op, index);
  if (!domain || wouldCycle(op, index))
    return false;
  group.domain = *domain;
  group.ops.push_back(op);
  if (*unit)
    group.weightUnit = *unit;
  groupIndex[op] = index;
  return true;
}
