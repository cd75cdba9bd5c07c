// Chooses a kernel's template and loops.
#include "compiler/codegen/kernels/KernelPlan.h"

#include "compiler/codegen/kernels/BodyWalk.h"
#include "compiler/codegen/kernels/KeptValues.h"
#include "compiler/dialects/nn/Build.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::kernels;
using nn::shapeOf;

namespace {

int64_t product(ArrayRef<int64_t> values) {
  int64_t result = 1;
  for (int64_t value : values)
    result *= value;
  return result;
}

// The kept and the reduced dimensions of a domain.
struct Domain {
  SmallVector<int64_t> shape;
  SmallVector<bool> reduced;

  explicit Domain(nn::ReduceOp op) : Domain(op.getInput(), op.getAxes()) {}
  Domain(Value value, ArrayRef<int64_t> axes)
      : shape(shapeOf(value)), reduced(shape.size(), false) {
    for (int64_t axis : axes)
      reduced[axis] = true;
  }
  SmallVector<int64_t> sizes(bool ofReduced) const {
    SmallVector<int64_t> result;
    for (auto [size, isReduced] : llvm::zip(shape, reduced))
      if (isReduced == ofReduced)
        result.push_back(size);
    return result;
  }
  int64_t keptCount() const { return product(sizes(false)); }
  int64_t reducedCount() const { return product(sizes(true)); }
  bool reducesInnermost() const {
    for (auto [size, isReduced] :
         llvm::zip(llvm::reverse(shape), llvm::reverse(reduced)))
      if (size != 1)
        return isReduced;
    return true;
  }
  bool reducesTrailing() const {
    bool seen = false;
    for (auto [size, isReduced] : llvm::zip(shape, reduced)) {
      if (size == 1)
        continue;
      if (seen && !isReduced)
        return false;
      seen |= isReduced;
    }
    return true;
  }
  // The index of kept element `kept` and reduced element `inner`.
  Index index(IndexSpace &space, const IndexExpr &kept,
              const IndexExpr &inner) const {
    Index outer = space.delinearize(kept, sizes(false));
    Index within = space.delinearize(inner, sizes(true));
    Index result;
    const IndexExpr *k = outer.begin(), *r = within.begin();
    for (bool isReduced : reduced)
      result.push_back(isReduced ? *r++ : *k++);
    return result;
  }
};

class Planner {
public:
  Planner(func::FuncOp kernel, bool keepsValues)
      : kernel(kernel), terminator(kernel.getBody().front().getTerminator()),
        keepsValues(keepsValues) {}

  FailureOr<KernelPlan> run();

private:
  LogicalResult planMap();
  LogicalResult planRows();
  LogicalResult planColumns();
  void pickBeforeStores(int level);
  int keepRow(int64_t count);
  void planEmbeddingGrad(nn::EmbeddingGradOp op);
  void collectReductions();
  int level(Value value);
  void setGrain();

  // Chooses how many lanes the stage's innermost loop has: all `count`
  // elements, or as many as keep every address linear in the lane.
  void chooseLanes(Stage &stage, int64_t count, int outerDepth, int laneDepth,
                   llvm::function_ref<void(Stage &, const IndexExpr &)> index);
  BodyWalk walk(Stage &stage);
  LogicalResult checkReductions(const BodyWalk &walk);

  int64_t elements(Value value) { return product(shapeOf(value)); }

  func::FuncOp kernel;
  Operation *terminator;
  bool keepsValues;
  KernelPlan plan;
  bool addsRows(nn::ReduceOp op);

  SmallVector<nn::ReduceOp> reductions; // in program order
  SmallVector<nn::ReduceOp> rowSums;    // over blocks of rows, likewise
  llvm::DenseMap<Value, int> levels;
};

// A sum over the middle axis that is a result and read by nothing else. By
// itself it has threads take blocks, so there must be some.
bool Planner::addsRows(nn::ReduceOp op) {
  ArrayRef<int64_t> shape = shapeOf(op.getInput());
  auto type = nn::tensorType(op.getResult()).getElementType();
  return shape.size() == 3 && op.getAxes() == ArrayRef<int64_t>{1} &&
         op.getKind() == nn::ReduceKind::sum && isa<FloatType>(type) &&
         !type.isBF16() && op->hasOneUse() && *op->user_begin() == terminator &&
         (shape[0] > 1 || terminator->getNumOperands() > 1);
}

void Planner::collectReductions() {
  kernel.walk([&](nn::ReduceOp op) {
    (addsRows(op) ? rowSums : reductions).push_back(op);
  });
}

// How many reductions must be complete, one after the other, before the value.
int Planner::level(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return 0;
  auto known = levels.find(value);
  if (known != levels.end())
    return known->second;
  int result = 0;
  for (Value operand : op->getOperands())
    result = std::max(result, level(operand));
  result += isa<nn::ReduceOp>(op);
  levels[value] = result;
  return result;
}

BodyWalk Planner::walk(Stage &stage) {
  // A condition on the lane cuts the loop where it changes; each part is then
  // looked at by itself.
  stage.cuts.clear();
  while (true) {
    BodyWalk result(plan.space);
    SmallVector<int64_t> bounds = {0};
    llvm::append_range(bounds, stage.cuts);
    bounds.push_back(stage.lanes);
    for (size_t i = 0; i + 1 < bounds.size(); ++i) {
      plan.space.setRange(stage.laneVariable, {bounds[i], bounds[i + 1] - 1});
      result.beginPart();
      for (const Root &root : stage.roots)
        result.visit(root.value, root.index);
    }
    plan.space.setRange(stage.laneVariable, {0, stage.lanes - 1});
    size_t known = stage.cuts.size();
    for (int64_t cut : result.cuts)
      if (cut > 0 && cut < stage.lanes && !llvm::is_contained(stage.cuts, cut))
        stage.cuts.push_back(cut);
    llvm::sort(stage.cuts);
    if (stage.cuts.size() == known)
      return result;
  }
}

void Planner::chooseLanes(
    Stage &stage, int64_t count, int outerDepth, int laneDepth,
    llvm::function_ref<void(Stage &, const IndexExpr &)> index) {
  int64_t lanes = count;
  while (true) {
    stage.lanes = lanes;
    stage.outer = count / lanes;
    stage.outerVariable = plan.space.variable(outerDepth, stage.outer);
    stage.laneVariable = plan.space.variable(laneDepth, lanes, /*isLane=*/true);
    index(stage, plan.space.add(plan.space.scale(stage.outerVariable, lanes),
                                stage.laneVariable));
    BodyWalk result = walk(stage);
    stage.cost = result.cost;
    stage.drawsRandom = result.drawsRandom;
    stage.gathers = result.gathers;
    int64_t next = 0;
    for (int64_t cut : result.divisors)
      if (cut < lanes && lanes % cut == 0)
        next = std::max(next, cut);
    if (next <= 1)
      return;
    lanes = next;
  }
}

LogicalResult Planner::checkReductions(const BodyWalk &walk) {
  for (const auto &[op, index] : walk.reductions) {
    IndexExpr position = plan.space.linearize(index, shapeOf(op->getResult(0)));
    IndexExpr own = plan.row;
    if (plan.kind == KernelPlan::Column)
      own =
          plan.space.add(plan.space.scale(plan.row, plan.stages.front().lanes),
                         plan.stages.front().laneVariable);
    if (!(position == own))
      return op->emitOpError("is read by another row of its kernel '")
             << kernel.getSymName() << "'";
  }
  return success();
}

LogicalResult Planner::planMap() {
  plan.kind = KernelPlan::Map;
  Stage &stage = plan.stages.emplace_back();
  int64_t count = elements(terminator->getOperand(0));
  for (auto [i, output] : llvm::enumerate(terminator->getOperands())) {
    if (elements(output) != count)
      return kernel.emitError("kernel '")
             << kernel.getSymName() << "' has outputs of different sizes";
    stage.roots.push_back({output, {}, static_cast<int>(i), {}, {}});
  }
  // Runs of lanes are the rows: the range goes over them, without a loop of
  // its own inside.
  chooseLanes(stage, count, /*outerDepth=*/0, /*laneDepth=*/2,
              [&](Stage &stage, const IndexExpr &linear) {
                for (Root &root : stage.roots)
                  root.index =
                      plan.space.delinearize(linear, shapeOf(root.value));
              });
  plan.row = stage.outerVariable;
  plan.rows = stage.outer;
  stage.outerVariable = 0;
  stage.outer = 1;
  plan.rowsInside = stage.gathers && stage.lanes > kLongestGather;
  plan.blockLanes = plan.rowsInside ? kGatherBlock : kMapBlock;
  if (stage.lanes > 2 * plan.blockLanes)
    plan.blocks = llvm::divideCeil(stage.lanes, plan.blockLanes);
  return success();
}

// What is picked out of a row is read before a result is written, which may lie
// over the row.
void Planner::pickBeforeStores(int current) {
  Stage stage;
  kernel.walk([&](nn::PickOp op) {
    Value value = op.getResult();
    if (level(value) == current && elements(value) == plan.rows)
      stage.roots.push_back({value,
                             {},
                             -1,
                             plan.space.delinearize(plan.row, shapeOf(value)),
                             {}});
  });
  if (!stage.roots.empty())
    plan.stages.push_back(stage);
}

int Planner::keepRow(int64_t count) {
  plan.keptRows.push_back(count);
  plan.stackBytes += count * 4 + 64;
  return kernel.getNumResults() + plan.keptRows.size() - 1;
}

LogicalResult Planner::planRows() {
  plan.kind = KernelPlan::Row;
  auto larger = [&](nn::ReduceOp a, nn::ReduceOp b) {
    return elements(a.getInput()) < elements(b.getInput());
  };
  Domain domain = reductions.empty()
                      ? Domain(rowSums.front().getInput(), ArrayRef<int64_t>{2})
                      : Domain(*llvm::max_element(reductions, larger));
  plan.rows = domain.keptCount();
  plan.row = plan.space.variable(0, plan.rows);

  for (nn::ReduceOp op : rowSums) {
    ArrayRef<int64_t> shape = shapeOf(op.getInput());
    if (shape[0] * shape[1] != plan.rows || shape[2] != domain.reducedCount() ||
        !domain.reducesTrailing() ||
        (plan.rowsPerBlock != 1 && plan.rowsPerBlock != shape[1]))
      return op.emitOpError("adds other rows than its kernel '")
             << kernel.getSymName() << "' has";
    plan.rowsPerBlock = shape[1];
  }

  int last = 0;
  for (nn::ReduceOp op : llvm::concat<nn::ReduceOp>(reductions, rowSums))
    last = std::max(last, level(op.getInput()));
  for (Value output : terminator->getOperands())
    if (!llvm::is_contained(rowSums, output.getDefiningOp()))
      last = std::max(last, level(output));

  SmallVector<KeptValue, 2> kept;
  if (keepsValues)
    kept = valuesToKeep(kernel, product(domain.shape),
                        [&](Value value) { return level(value); });

  // A stage for each level and each length of the inner loops, then one for the
  // outputs with an element a row.
  Stage scalars;
  for (int current = 0; current <= last; ++current) {
    std::map<int64_t, SmallVector<Root, 2>> byCount;
    pickBeforeStores(current);
    for (KeptValue &entry : kept)
      if (entry.level == current) {
        if (entry.output < 0)
          entry.output = keepRow(domain.reducedCount());
        byCount[domain.reducedCount()].push_back(
            {entry.value, {}, entry.output, {}, {}});
      }
    for (nn::ReduceOp op : reductions) {
      if (level(op.getInput()) != current)
        continue;
      if (Domain(op).keptCount() != plan.rows)
        return op.emitOpError("keeps other rows than its kernel '")
               << kernel.getSymName() << "'";
      byCount[Domain(op).reducedCount()].push_back(
          {op.getInput(), op, -1, {}, {}});
    }
    for (auto [i, output] : llvm::enumerate(terminator->getOperands())) {
      auto sum = output.getDefiningOp<nn::ReduceOp>();
      bool addsRows = llvm::is_contained(rowSums, sum);
      if (level(addsRows ? sum.getInput() : output) != current)
        continue;
      if (addsRows) {
        byCount[domain.reducedCount()].push_back(
            {sum.getInput(), sum, static_cast<int>(i), {}, {}});
        continue;
      }
      int64_t count = elements(output);
      bool isDomain = count == product(domain.shape);
      if (count % plan.rows != 0 ||
          (count != plan.rows && !isDomain && !domain.reducesTrailing()))
        return kernel.emitError("kernel '")
               << kernel.getSymName() << "' has an output of other rows";
      Root root{output, {}, static_cast<int>(i), {}, {}};
      if (count == plan.rows)
        scalars.roots.push_back(root);
      else
        byCount[count / plan.rows].push_back(root);
    }
    for (auto &[count, roots] : byCount) {
      Stage &stage = plan.stages.emplace_back();
      stage.roots = roots;
      chooseLanes(
          stage, count, /*outerDepth=*/1, /*laneDepth=*/2,
          [&](Stage &stage, const IndexExpr &inner) {
            for (Root &root : stage.roots) {
              ArrayRef<int64_t> shape = shapeOf(root.value);
              if (root.addsRows())
                root.sum = plan.space.add(
                    plan.space.scale(
                        plan.space.floorDiv(plan.row, plan.rowsPerBlock),
                        domain.reducedCount()),
                    inner);
              if (root.reduce && !root.addsRows()) {
                root.index =
                    Domain(root.reduce).index(plan.space, plan.row, inner);
              } else if (domain.reducesTrailing()) {
                IndexExpr linear = plan.space.add(
                    plan.space.scale(plan.row,
                                     elements(root.value) / plan.rows),
                    inner);
                root.index = plan.space.delinearize(linear, shape);
              } else {
                Index index = domain.index(plan.space, plan.row, inner);
                IndexExpr linear = plan.space.linearize(index, domain.shape);
                root.index = plan.space.delinearize(linear, shape);
              }
            }
          });
    }
  }
  if (!scalars.roots.empty()) {
    for (Root &root : scalars.roots)
      root.index = plan.space.delinearize(plan.row, shapeOf(root.value));
    plan.stages.push_back(scalars);
  }
  for (Stage &stage : plan.stages)
    if (failed(checkReductions(walk(stage))))
      return failure();
  return success();
}

LogicalResult Planner::planColumns() {
  plan.kind = KernelPlan::Column;
  Domain domain(reductions.front());
  int64_t kept = domain.keptCount();
  Stage &stage = plan.stages.emplace_back();
  for (nn::ReduceOp op : reductions)
    stage.roots.push_back({op.getInput(), op, -1, {}, {}});
  for (auto [i, output] : llvm::enumerate(terminator->getOperands()))
    stage.roots.push_back({output, {}, static_cast<int>(i), {}, {}});

  // Lanes are at most the innermost run of kept dimensions.
  IndexExpr within;
  chooseLanes(
      stage, kept, /*outerDepth=*/0, /*laneDepth=*/1,
      [&](Stage &stage, const IndexExpr &linear) {
        within = plan.space.variable(2, domain.reducedCount());
        for (Root &root : stage.roots)
          root.index =
              root.reduce
                  ? Domain(root.reduce).index(plan.space, linear, within)
                  : plan.space.delinearize(linear, shapeOf(root.value));
      });
  plan.row = stage.outerVariable;
  plan.rows = stage.outer;
  stage.outerVariable = within;
  stage.outer = domain.reducedCount();
  plan.blockLanes = kColumnBlock;
  plan.blocks = llvm::divideCeil(stage.lanes, kColumnBlock);
  return checkReductions(walk(stage));
}

void Planner::planEmbeddingGrad(nn::EmbeddingGradOp op) {
  plan.kind = KernelPlan::EmbeddingGrad;
  Stage &stage = plan.stages.emplace_back();
  stage.lanes = shapeOf(op.getResult()).back();
  stage.outer = elements(op.getIds());
  stage.cost = 2;
  stage.outerVariable = plan.space.variable(1, stage.outer);
  stage.laneVariable = plan.space.variable(2, stage.lanes, /*isLane=*/true);
  IndexExpr linear = plan.space.add(
      plan.space.scale(stage.outerVariable, stage.lanes), stage.laneVariable);
  stage.roots.push_back({op.getGrad(),
                         {},
                         0,
                         plan.space.delinearize(linear, shapeOf(op.getGrad())),
                         {}});
  plan.blockLanes = kColumnBlock;
  plan.blocks = llvm::divideCeil(stage.lanes, kColumnBlock);
  if (nn::tensorType(op.getResult()).getElementType().isBF16())
    // A row's sums in f32, each row's first place, each place's next one.
    plan.stackBytes =
        4 * (stage.lanes + shapeOf(op.getResult())[0] + stage.outer) + 3 * 64;
}

// A piece of the range should be worth a thread's wake-up.
void Planner::setGrain() {
  constexpr int64_t kWorth = 1 << 17; // simple ops
  plan.extent = plan.rows * plan.blocks / plan.rowsPerBlock;
  int64_t total = 0;
  for (const Stage &stage : plan.stages)
    total += stage.outer * stage.lanes * (stage.cost + 4);
  total = total * plan.rowsPerBlock / plan.blocks;
  int64_t each = std::max<int64_t>(1, total);
  plan.grain = std::clamp<int64_t>(kWorth / each, 1, plan.extent);
}

FailureOr<KernelPlan> Planner::run() {
  if (terminator->getNumOperands() == 0)
    return kernel.emitError("kernel '")
           << kernel.getSymName() << "' has no output";
  collectReductions();
  LogicalResult result = success();
  auto scatter = terminator->getOperand(0).getDefiningOp<nn::EmbeddingGradOp>();
  if (scatter) {
    planEmbeddingGrad(scatter);
  } else if (!rowSums.empty()) {
    result = planRows();
  } else if (reductions.empty()) {
    result = planMap();
  } else {
    // Columns: every reduction of one domain, straight from the operands, and
    // outputs of the kept shape alone.
    nn::ReduceOp first = reductions.front();
    Domain domain(first);
    bool columns = !domain.reducesInnermost();
    for (nn::ReduceOp op : reductions)
      columns &= level(op.getInput()) == 0 &&
                 shapeOf(op.getInput()) == ArrayRef<int64_t>(domain.shape) &&
                 op.getAxes() == first.getAxes();
    for (Value output : terminator->getOperands())
      columns &= elements(output) == domain.keptCount();
    result = columns ? planColumns() : planRows();
  }
  if (failed(result))
    return failure();
  setGrain();
  return std::move(plan);
}

} // namespace

FailureOr<KernelPlan> kernels::planKernel(func::FuncOp kernel,
                                          bool keepsValues) {
  return Planner(kernel, keepsValues).run();
}
