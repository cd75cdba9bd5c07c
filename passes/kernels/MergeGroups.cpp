// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Merges groups: those whose values pass from one to the other, and those that
// only sum rows with one that visits the same rows. Each merge saves a pass
// over memory, and often the memory of the values between.
#include "compiler/dialects/nn/ShapeOps.h"
#include "passes/kernels/KernelGroups.h"

#include "llvm/ADT/SetVector.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

// Returns true if all that is read of the group are sums over rows. Such a
// group may run wherever its rows are visited, since it only adds to sums of
// its own.
bool KernelGrouping::onlySumsRows(int group) const {
  SmallVector<Value> outputs = outputsOf(group);
  return !outputs.empty() && llvm::all_of(outputs, [](Value output) {
    return rowSumsOf(output.getDefiningOp()).has_value();
  });
}

// Returns true for a group of the backward that computes each element by
// itself, besides sums over rows. Memory bounds such a kernel on a GPU, so an
// activation that is computed again costs little beside its gradient, which
// reads the same values. In the forward, results would wait for each other
// longer than their memory is worth.
bool KernelGrouping::isMapOfBackward(int group) const {
  const KernelGroup &own = allGroups[group];
  return !own.ops.empty() && !own.domain.reduces() &&
         own.ops.front()->hasAttr(fsdp::FSDPDialect::kBackwardAttr);
}

// Returns the ops with a group that make or read the value, in program order.
ArrayRef<Operation *> KernelGrouping::groupedOpsAt(Value value) {
  auto [entry, isNew] = opsAt.try_emplace(value);
  SmallVector<Operation *> &ops = entry->second;
  if (!isNew)
    return ops;
  auto add = [&](Operation *op) {
    if (op && groupOf(op) >= 0)
      ops.push_back(op);
  };
  add(value.getDefiningOp());
  for (Operation *user : value.getUsers())
    add(user);
  llvm::sort(ops, [&](Operation *a, Operation *b) {
    return position(a) < position(b);
  });
  return ops;
}

// The ops before and behind a reader of rows whose groups it may join. A value
// may have thousands of readers, and each would look at all of them.
static constexpr int64_t kMostNeighbours = 32;

// Returns groups that read or write the rows that this one reads, in program
// order: those of the nearest producers and readers of the rows.
SmallVector<int> KernelGrouping::groupsOnSameRows(int group) {
  llvm::SmallSetVector<int, 4> others;
  for (Operation *op : allGroups[group].ops)
    for (const Source &source : sourcesOf(op)) {
      auto type = cast<RankedTensorType>(source.value.getType());
      if (type.getShape() != ArrayRef<int64_t>(allGroups[group].domain.shape))
        continue;
      ArrayRef<Operation *> ops = groupedOpsAt(source.value);
      const auto *place = llvm::partition_point(ops, [&](Operation *other) {
        return position(other) < position(op);
      });
      int64_t begin =
          std::max<int64_t>(place - ops.begin() - kMostNeighbours, 0);
      for (Operation *other :
           ops.drop_front(begin).take_front(2 * kMostNeighbours))
        if (groupOf(other) != group)
          others.insert(groupOf(other));
    }
  SmallVector<int> sorted(others.begin(), others.end());
  llvm::sort(sorted, [&](int a, int b) {
    return position(allGroups[a].ops.front()) <
           position(allGroups[b].ops.front());
  });
  return sorted;
}

// Returns true for a group whose reductions all add the sums of blocks of rows
// to each other. Its other ops work on elements of their results.
bool KernelGrouping::onlyAddsBlocks(int group) const {
  const KernelGroup &own = allGroups[group];
  return own.domain.reduces() && !own.domain.reducesInnermost() &&
         llvm::all_of(own.ops, [](Operation *op) {
           auto sum = dyn_cast<nn::ReduceOp>(op);
           Operation *source = sum ? sum.getInput().getDefiningOp() : nullptr;
           return !sum || (source && rowSumsOf(source));
         });
}

// The most sums of such a kernel. The threads of a block exchange each in 2 KB
// of shared memory, of which a block has 48 KB. A unit may be a whole model.
static constexpr int64_t kMostSums = 16;

// A unit's backward ends with such sums, ten for a block of a transformer. Each
// is over before the GPU has started it, so those of one shape are one kernel.
void KernelGrouping::mergeSumsOfBlocks() {
  auto sumsOf = [&](int group) -> int64_t {
    return llvm::count_if(allGroups[group].ops, llvm::IsaPred<nn::ReduceOp>);
  };
  // The last group of each shape, unit and direction.
  std::map<std::tuple<std::vector<int64_t>, const void *, const void *>, int>
      last;
  for (int group = 0, end = allGroups.size(); group < end; ++group) {
    if (allGroups[group].ops.empty() || !onlyAddsBlocks(group))
      continue;
    Operation *op = allGroups[group].ops.front();
    auto attribute = [&](StringRef name) {
      return op->getAttr(name).getAsOpaquePointer();
    };
    auto [known, isNew] = last.try_emplace(
        {ArrayRef<int64_t>(allGroups[group].domain.shape).vec(),
         attribute(fsdp::FSDPDialect::kUnitAttr),
         attribute(fsdp::FSDPDialect::kBackwardAttr)},
        group);
    bool fits = sumsOf(group) + sumsOf(known->second) <= kMostSums;
    if (!isNew && !(fits && merge(group, known->second)))
      known->second = group;
  }
}

// Merges what a GPU's memory and launches make worthwhile.
void KernelGrouping::mergeOnGpu() {
  mergesSums = true;
  mergeSumsOfBlocks();
  for (int group = 0, end = allGroups.size(); group < end; ++group)
    if (isMapOfBackward(group))
      llvm::any_of(groupsOnSameRows(group), [&](int other) {
        return isMapOfBackward(other) && merge(group, other);
      });
}

// Returns the domain of two groups as one, or nullopt if they cannot be one.
// They must have one shape, and values must pass between them element by
// element, or from the reduction of a row to that row.
std::optional<Domain> KernelGrouping::commonDomain(int a, int b) const {
  Domain domain = allGroups[a].domain;
  const Domain &other = allGroups[b].domain;
  // A group of maps takes over the axes of the other one.
  if (!domain.reduces())
    domain.axes = other.axes;
  int64_t rows = allGroups[a].rowsPerBlock,
          otherRows = allGroups[b].rowsPerBlock;
  bool sumsRows = rows || otherRows;
  if (domain.shape != other.shape ||
      (other.reduces() && domain.axes != other.axes) ||
      (domain.reduces() && !domain.reducesInnermost() &&
       !(mergesSums && onlyAddsBlocks(a) && onlyAddsBlocks(b))) ||
      (sumsRows && domain.reduces() && !domain.reducesRows()) ||
      (rows && otherRows && rows != otherRows))
    return std::nullopt;
  // Values may pass in both directions, so each group is looked at as the
  // reader.
  for (auto [reader, read] : {std::pair(a, b), std::pair(b, a)})
    for (Operation *op : allGroups[reader].ops)
      for (const Source &source : sourcesOf(op)) {
        Operation *producer = source.value.getDefiningOp();
        if (!producer || groupOf(producer) != read)
          continue;
        auto shape = cast<RankedTensorType>(source.value.getType()).getShape();
        // A value per row may be broadcast back over its row: it is complete
        // when the row has been read.
        bool ofRow = domain.reduces() && domain.isReducedShape(shape);
        auto fusible = dyn_cast<nn::FusibleOpInterface>(op);
        bool anywhere = fusible && fusible.readsAnyElement(0) &&
                        op->getOperand(0) == source.value;
        if (source.indexed || anywhere || kindOf(op) == OpKind::Index ||
            (source.broadcast && !ofRow))
          return std::nullopt;
      }
  return domain;
}

// Merges a group into another. Returns false if the rules forbid it.
bool KernelGrouping::merge(int index, int into) {
  KernelGroup &from = allGroups[index], &to = allGroups[into];
  if (index == into || from.ops.empty() || from.closed || to.closed ||
      from.size + to.size > kMostOps ||
      !sameOwner(from.ops.front(), to.ops.front()) ||
      (from.weightUnit && to.weightUnit && from.weightUnit != to.weightUnit))
    return false;
  std::optional<Domain> domain = commonDomain(index, into);
  if (!domain ||
      !graph->merge(position(from.ops.front()), position(to.ops.front())))
    return false;
  // Merged by position, since Outliner clones the ops in this order.
  SmallVector<Operation *> ops;
  std::merge(from.ops.begin(), from.ops.end(), to.ops.begin(), to.ops.end(),
             std::back_inserter(ops), [&](Operation *a, Operation *b) {
               return position(a) < position(b);
             });
  for (Operation *op : from.ops)
    groupIndex[op] = into;
  to = {ops,
        from.size + to.size,
        *domain,
        /*closed=*/false,
        std::max(from.rowsPerBlock, to.rowsPerBlock),
        from.weightUnit ? from.weightUnit : to.weightUnit};
  // The group stays as an empty one, which nothing joins or outlines.
  from.ops.clear();
  return true;
}
