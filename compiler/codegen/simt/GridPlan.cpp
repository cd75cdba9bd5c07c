// Chooses the width of vectors and the shape of the grid. Vectors are as wide
// as all accesses of a stage allow (adjacent, aligned, inside one part), since
// memory traffic bounds these kernels. The shape balances enough blocks to
// occupy the GPU against enough work for each thread.
#include "compiler/codegen/simt/GridPlan.h"

#include "compiler/analysis/kernels/BodyWalk.h"
#include "compiler/codegen/simt/GridModule.h"
#include "compiler/dialects/nn/Build.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::simt;
using analysis::IndexExpr;
using analysis::KernelPlan;
using analysis::Root;
using analysis::Stage;

namespace {

constexpr int64_t kVectorBytes = 16; // bytes of the widest load
constexpr int64_t kMostLanes = 8; // f32 values of a thread at a time, at most
constexpr int64_t kSharedBytes = 48000; // shared memory per block on every GPU
// Elements of a row for which a warp suffices.
constexpr int64_t kShortRow = 2048;
constexpr int64_t kFewBlocks = 264; // two per multiprocessor of a large GPU
constexpr int64_t kSums = 32;       // running sums of a thread, if possible
constexpr int64_t kMostSums = 64;   // running sums of a thread, at most
// Threads whose 16-byte vectors fill a cache line.
constexpr int64_t kLeastAcross = 8;

// An access to memory at adjacent lanes.
struct Access {
  int64_t bytes;     // per element
  int64_t alignment; // of the buffer, in bytes
  IndexExpr address;
};

int64_t bytesOf(Type element) {
  return llvm::divideCeil(element.getIntOrFloatBitWidth(), 8);
}

class GridPlanner {
public:
  GridPlanner(func::FuncOp kernel, KernelPlan &plan, const GridOptions &options)
      : kernel(kernel), plan(plan), alignments(alignmentsOf(kernel)) {
    grid.threads = options.threads;
  }

  GridPlan run();

private:
  // Returns the accesses of a stage, within the current range of its lane
  // variable.
  SmallVector<Access> accesses(Stage &stage);
  // Returns true if vectors of `width` lanes are aligned in all accesses, do
  // not cross a cut, and at least one access needs no more than one load for
  // them.
  bool allows(Stage &stage, int64_t width);
  // Returns the widest allowed width that leaves at least `fewest` vectors,
  // else 1.
  int64_t widthOf(Stage &stage, int64_t fewest);
  void planRows();
  void planRowSums();
  void planColumns();
  void planEmbeddingGrad();

  func::FuncOp kernel;
  KernelPlan &plan;
  SmallVector<int64_t> alignments;
  GridPlan grid;
};

SmallVector<Access> GridPlanner::accesses(Stage &stage) {
  SmallVector<Access> result;
  auto add = [&](int64_t buffer, Type element, const IndexExpr &address) {
    if (plan.space.usesLane(address) && plan.space.laneStride(address) == 1)
      result.push_back({bytesOf(element), alignments[buffer], address});
  };
  analysis::BodyWalk walk(plan.space);
  for (Root &root : stage.roots) {
    walk.visit(root.value, root.index);
    if (root.output < 0)
      continue;
    Value stored = root.addsRows() ? root.reduce.getResult() : root.value;
    add(kernel.getNumArguments() + root.output,
        nn::tensorType(stored).getElementType(),
        root.addsRows()
            ? root.sum
            : plan.space.linearize(root.index, nn::shapeOf(root.value)));
  }
  for (const auto &[argument, address] : walk.reads)
    add(argument.getArgNumber(), nn::tensorType(argument).getElementType(),
        address);
  return result;
}

bool GridPlanner::allows(Stage &stage, int64_t width) {
  SmallVector<int64_t> bounds = {0};
  llvm::append_range(bounds, stage.cuts);
  bounds.push_back(stage.lanes);
  bool result = true, narrow = false;
  for (size_t part = 0; part + 1 < bounds.size(); ++part) {
    result &= bounds[part + 1] % width == 0;
    plan.space.setRange(stage.laneVariable,
                        {bounds[part], bounds[part + 1] - 1});
    for (const Access &access : accesses(stage)) {
      narrow |= width * access.bytes <= kVectorBytes;
      int64_t own = access.bytes * plan.space.alignment(access.address, width);
      int64_t alignment =
          own ? std::min(own, access.alignment) : access.alignment;
      result &= alignment >= std::min(kVectorBytes, width * access.bytes);
    }
  }
  plan.space.setRange(stage.laneVariable, {0, stage.lanes - 1});
  return result && narrow;
}

int64_t GridPlanner::widthOf(Stage &stage, int64_t fewest) {
  int64_t count = stage.outer * stage.lanes;
  for (int64_t width = kMostLanes; width > 1; width /= 2)
    if (stage.lanes % width == 0 && count / width >= fewest &&
        allows(stage, width))
      return width;
  return 1;
}

void GridPlanner::planRows() {
  int64_t longest = 1;
  for (const Stage &stage : plan.stages)
    longest = std::max(longest, stage.outer * stage.lanes);
  if (plan.rowsPerBlock > 1)
    return planRowSums();
  grid.team =
      longest <= kShortRow ? std::min(kWarp, grid.threads) : grid.threads;
  for (Stage &stage : plan.stages)
    grid.widths.push_back(widthOf(stage, grid.team));
  grid.blocks = llvm::divideCeil(plan.rows, grid.threads / grid.team);
}

// Rows that are added up in blocks: a thread owns the same columns of all rows
// of a block. Smaller teams take more rows at a time, but each thread then owns
// more columns. Teams that exchange values must be a warp or the block.
void GridPlanner::planRowSums() {
  grid.blocks = plan.extent;
  bool exchanges = plan.stages.size() > 1;
  for (const Stage &stage : plan.stages)
    for (const Root &root : stage.roots)
      exchanges |= root.reduce && !root.addsRows();
  for (grid.team = std::min(kWarp, grid.threads);; grid.team *= 2) {
    bool isBlock = grid.team == grid.threads;
    if (exchanges && grid.team != kWarp && !isBlock)
      continue;
    int64_t registers = 0;
    grid.widths.clear();
    for (Stage &stage : plan.stages) {
      int64_t width = widthOf(stage, grid.team);
      grid.widths.push_back(width);
      int64_t count = stage.outer * stage.lanes;
      for (const Root &root : stage.roots)
        if (root.addsRows())
          registers += llvm::divideCeil(count / width, grid.team) * width;
    }
    grid.sumsInRegisters =
        registers <= (exchanges || isBlock ? kMostSums : kSums);
    if (grid.sumsInRegisters || isBlock)
      return;
  }
}

void GridPlanner::planColumns() {
  Stage &stage = plan.stages.front();
  int64_t width = widthOf(stage, 1);
  auto sharedBytes = [&] {
    int64_t bytes = 0;
    for (const Root &root : stage.roots)
      if (root.reduce)
        bytes += grid.threads * width * 8;
    return bytes;
  };
  while (width > 1 && sharedBytes() > kSharedBytes)
    width /= 2;
  grid.widths.push_back(width);
  int64_t vectors = plan.rows * stage.lanes / width;
  // With few columns, uses more lines of threads, as long as each line has rows
  // and the threads of a line fill a cache line.
  grid.across = grid.threads;
  while (grid.across > kLeastAcross && vectors / grid.across < kFewBlocks &&
         2 * grid.threads / grid.across <= stage.outer)
    grid.across /= 2;
  grid.blocks = llvm::divideCeil(vectors, grid.across);
}

void GridPlanner::planEmbeddingGrad() {
  Stage &stage = plan.stages.front();
  Value result = kernel.getBody().front().getTerminator()->getOperand(0);
  int64_t rows = nn::shapeOf(result)[0];
  // Every block searches all ids, so blocks own several rows.
  constexpr int64_t kTableRows = 16;
  grid.tableRows = std::min(rows, grid.threads == 1 ? rows : kTableRows);
  int64_t width = 1;
  for (int64_t wider = kMostLanes; width == 1 && wider > 1; wider /= 2)
    if (stage.lanes % wider == 0 &&
        stage.lanes / wider >= std::min(stage.lanes, grid.threads / 2) &&
        allows(stage, wider))
      width = wider;
  grid.widths.push_back(width);
  grid.blocks = llvm::divideCeil(rows, grid.tableRows) *
                llvm::divideCeil(stage.lanes / width, grid.threads);
}

GridPlan GridPlanner::run() {
  switch (plan.kind) {
  case nn::KernelTemplate::map: {
    Stage &stage = plan.stages.front();
    grid.widths.push_back(widthOf(stage, 1));
    int64_t vectors = plan.rows * stage.lanes / grid.widths.front();
    // In emulation a block is one thread, and should be worth its call.
    grid.vectors = grid.threads == 1 ? std::min<int64_t>(vectors, 256) : 1;
    grid.blocks = llvm::divideCeil(vectors, grid.threads * grid.vectors);
    break;
  }
  case nn::KernelTemplate::row:
    planRows();
    break;
  case nn::KernelTemplate::column:
    planColumns();
    break;
  case nn::KernelTemplate::embedding_grad:
    planEmbeddingGrad();
    break;
  }
  return grid;
}

} // namespace

SmallVector<int64_t> simt::alignmentsOf(func::FuncOp kernel) {
  if (auto known = kernel->getAttrOfType<DenseI64ArrayAttr>(kAlignmentsAttr))
    return llvm::to_vector(known.asArrayRef());
  return SmallVector<int64_t>(kernel.getNumArguments() + kernel.getNumResults(),
                              kVectorBytes);
}

GridPlan simt::planGrid(func::FuncOp kernel, KernelPlan &plan,
                        const GridOptions &options) {
  return GridPlanner(kernel, plan, options).run();
}
