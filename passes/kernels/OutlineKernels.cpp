// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// outline-kernels: replaces each group of ops with a private function and its
// launch. The other ops are sorted again, since a group runs as a whole:
// program order is kept as far as dependences allow.
#include "passes/kernels/ExpandForGrouping.h"
#include "passes/kernels/KernelGroups.h"
#include "passes/kernels/Passes.h"
#include "runtime/support/concat.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "mlir/IR/IRMapping.h"

#include <queue>

namespace fsdpc::passes {
#define GEN_PASS_DEF_OUTLINEKERNELS
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// A splat is cloned into the kernels that read it, where it is an immediate and
// needs no memory.
bool isSplat(Operation *op) {
  auto constant = dyn_cast_or_null<nn::ConstantOp>(op);
  return constant && isa<SplatElementsAttr>(constant.getValue());
}

// Builds the function and the launch of one group.
class Outliner {
public:
  Outliner(const KernelGrouping &grouping, int group, SymbolTable &symbols)
      : grouping(grouping), group(group), symbols(symbols) {}

  // Creates both, the launch at the builder's insertion point, and makes uses
  // outside the group read the launch's results.
  nn::LaunchOp outline(OpBuilder &builder);

private:
  Value inside(Value value, OpBuilder &builder);
  void clone(Operation *op, OpBuilder &builder);
  std::string name() const;

  // The state of one outlining: values outside the group by their clones or
  // arguments inside, and the launch's operands in the order of the arguments.
  const KernelGrouping &grouping;
  int group;
  SymbolTable &symbols;
  IRMapping mapping;
  SmallVector<Value> operands;
  Block *body = nullptr;
};

// Returns a name from the group's main op and its domain:
// "layer_norm_4x256x384".
std::string Outliner::name() const {
  const KernelGroup &kernel = grouping.groups()[group];
  // Composites name a kernel best. Casts and sums over rows only accompany what
  // it computes.
  Operation *main = kernel.ops.front();
  for (Operation *op : kernel.ops)
    if (isa<nn::DecomposeOpInterface>(op) ||
        !(isa<nn::DecomposeOpInterface>(main) || isa<nn::CastOp>(op) ||
          rowSumsOf(op)))
      main = op;
  std::string text = main->getName().stripDialect().str();
  for (auto [i, size] : llvm::enumerate(kernel.domain.shape))
    text += concat(i ? "x" : "_", size);
  return text;
}

// Clones an op into the kernel, after the values that it reads.
void Outliner::clone(Operation *op, OpBuilder &builder) {
  for (Value operand : op->getOperands())
    mapping.map(operand, inside(operand, builder));
  Operation *copy = builder.clone(*op, mapping);
  // The launch keeps the origin of the ops. Kernels have none, so equal ones
  // merge.
  for (NamedAttribute attribute : llvm::to_vector(copy->getDiscardableAttrs()))
    copy->removeDiscardableAttr(attribute.getName());
}

// Returns the value inside the kernel: a clone if it costs nothing to
// recompute, else an argument of the kernel.
Value Outliner::inside(Value value, OpBuilder &builder) {
  if (Value known = mapping.lookupOrNull(value))
    return known;
  Operation *producer = value.getDefiningOp();
  if (producer && (grouping.isMovable(producer) || isSplat(producer))) {
    clone(producer, builder);
    return mapping.lookup(value);
  }
  operands.push_back(value);
  Value argument = body->addArgument(value.getType(), value.getLoc());
  mapping.map(value, argument);
  return argument;
}

nn::LaunchOp Outliner::outline(OpBuilder &builder) {
  const KernelGroup &kernel = grouping.groups()[group];
  SmallVector<Location> locations;
  for (Operation *op : kernel.ops)
    locations.push_back(op->getLoc());
  Location location = builder.getFusedLoc(locations);

  auto function =
      func::FuncOp::create(location, name(), builder.getFunctionType({}, {}));
  function.setPrivate();
  function->setAttr("nn.kernel", builder.getUnitAttr());
  body = function.addEntryBlock();
  OpBuilder inner = OpBuilder::atBlockBegin(body);
  // Cloned in program order, so that operands of the group are mapped when they
  // are read.
  for (Operation *op : kernel.ops)
    clone(op, inner);
  SmallVector<Value> outputs = grouping.outputsOf(group), returned;
  for (Value output : outputs)
    returned.push_back(mapping.lookup(output));
  func::ReturnOp::create(inner, location, returned);
  function.setType(builder.getFunctionType(body->getArgumentTypes(),
                                           ValueRange(returned).getTypes()));
  symbols.insert(function);

  auto launch =
      nn::LaunchOp::create(builder, location, ValueRange(returned).getTypes(),
                           FlatSymbolRefAttr::get(function.getSymNameAttr()),
                           operands, DenseI64ArrayAttr());
  // The launch takes the unit and direction of the group, which are those of
  // all its ops.
  launch->setDiscardableAttrs(
      kernel.ops.back()->getDiscardableAttrDictionary());
  for (auto [output, result] : llvm::zip_equal(outputs, launch.getOutputs()))
    output.replaceAllUsesWith(result);
  return launch;
}

// The order of what remains, with each group as one item: program order as far
// as dependences allow. It is a topological sort with a heap, in O((n + e) log
// n). Ops without results (sinks) keep their order, since their effects do not
// show in operands.
class Order {
public:
  Order(func::FuncOp function, const KernelGrouping &grouping)
      : grouping(grouping) {
    for (Operation &op : function.getBody().front())
      if (!grouping.isMovable(&op) && !isa<func::ReturnOp>(op))
        addItem(&op);
    Operation *lastSink = nullptr;
    for (Operation &op : function.getBody().front()) {
      if (!items.contains(&op))
        continue;
      addDependences(&op, &op);
      if (op.getNumResults() == 0) {
        if (lastSink)
          addEdge(items.lookup(lastSink), items.lookup(&op));
        lastSink = &op;
      }
    }
  }

  size_t size() const { return representative.size(); }

  // Returns the representative of each item: an op of the group, or the op
  // itself. There are fewer than items if groups depend on each other in a
  // cycle.
  SmallVector<Operation *> sorted() {
    // The item whose last op came first in the program is taken first.
    auto later = [&](int a, int b) { return priority[a] > priority[b]; };
    std::priority_queue<int, std::vector<int>, decltype(later)> ready(later);
    for (int item = 0, end = priority.size(); item < end; ++item)
      if (pending[item] == 0)
        ready.push(item);
    SmallVector<Operation *> result;
    while (!ready.empty()) {
      int item = ready.top();
      ready.pop();
      result.push_back(representative[item]);
      for (int user : users[item])
        if (--pending[user] == 0)
          ready.push(user);
    }
    return result;
  }

private:
  void addItem(Operation *op) {
    int group = grouping.groupOf(op);
    auto [entry, isNew] = group < 0 ? std::pair(-1, true)
                                    : std::pair(group, !groupItem.count(group));
    int item = isNew ? representative.size() : groupItem[entry];
    if (isNew) {
      representative.push_back(op);
      priority.push_back(0);
      pending.push_back(0);
      users.emplace_back();
      if (group >= 0)
        groupItem[group] = item;
    }
    priority[item] = grouping.position(op); // for a group, its last op
    items[op] = item;
  }

  void addEdge(int before, int after) {
    if (before == after || !edges.insert({before, after}).second)
      return;
    users[before].push_back(after);
    ++pending[after];
  }

  // A movable op has no item, so its reader depends on what it reads.
  void addDependences(Operation *reader, Operation *op) {
    for (Value operand : op->getOperands()) {
      Operation *producer = operand.getDefiningOp();
      if (!producer)
        continue;
      if (grouping.isMovable(producer))
        addDependences(reader, producer);
      else
        addEdge(items.lookup(producer), items.lookup(reader));
    }
  }

  const KernelGrouping &grouping;
  DenseMap<Operation *, int> items;
  DenseMap<int, int> groupItem;
  // Per item: an op that stands for it, the position by which ready items are
  // chosen, the number of items that it still waits for, and the items that
  // wait for it.
  SmallVector<Operation *> representative;
  SmallVector<int> priority, pending;
  SmallVector<SmallVector<int>> users;
  DenseSet<std::pair<int, int>> edges;
};

struct OutlineKernels
    : fsdpc::passes::impl::OutlineKernelsBase<OutlineKernels> {
  void runOnOperation() override {
    auto functions = fsdp::getForwards(getOperation());
    if (failed(functions))
      return signalPassFailure();
    // The kernels of @evaluate follow those of training, and most of them are
    // merged with those.
    for (func::FuncOp function : *functions)
      if (failed(outline(function)))
        return signalPassFailure();
  }

  LogicalResult outline(func::FuncOp function) {
    ModuleOp module = getOperation();
    expandForGrouping(function);
    KernelGrouping grouping(function, module);
    Order items(function, grouping);
    SmallVector<Operation *> order = items.sorted();
    if (order.size() != items.size())
      return function.emitOpError(
          "has kernels that depend on each other in a cycle; this is a bug in "
          "the grouping of ops");

    SymbolTable symbols(module);
    Operation *end = function.getBody().front().getTerminator();
    OpBuilder builder(end);
    SmallVector<Operation *> erased;
    for (Operation &op : function.getBody().front())
      if (grouping.isMovable(&op) || grouping.groupOf(&op) >= 0)
        erased.push_back(&op);
    for (Operation *op : order) {
      int group = grouping.groupOf(op);
      if (group < 0) {
        op->moveBefore(end);
        continue;
      }
      if (grouping.outputsOf(group).empty())
        continue; // dead
      Outliner(grouping, group, symbols).outline(builder);
      ++kernels;
      fused += grouping.groups()[group].ops.size();
    }
    for (Operation *op : llvm::reverse(erased)) {
      op->dropAllUses();
      op->erase();
    }
    function.walk([](nn::ConstantOp op) {
      if (op->use_empty())
        op.erase();
    });
    return success();
  }
};

} // namespace
