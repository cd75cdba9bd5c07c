// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks a grid that a dump may have brought: what the emitters rely on, and
// that the numbers agree with each other and with the kernel's plan.
#include "compiler/analysis/kernels/GridPlanner.h"

#include "llvm/Support/MathExtras.h"

#include <tuple>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;

// Vectors must be aligned wherever they are loaded or stored, and lie in one
// part of the lanes' loop. The widths are checked before anything is divided by
// them.
LogicalResult GridPlanner::checkWidths() {
  if (failed(checkThreads()))
    return failure();
  if (given.getWidths().size() != plan.stages.size())
    return emitError() << "has " << given.getWidths().size()
                       << " widths in its grid for " << plan.stages.size()
                       << " stages";
  for (auto [number, width] : llvm::enumerate(given.getWidths())) {
    // A stage that reduces rows has the width of its order, which checkGiven
    // compares.
    Stage &stage = plan.stages[number];
    bool fits = width == 1 || stage.run ||
                (llvm::isPowerOf2_64(width) && width <= kMostLanes &&
                 stage.lanes % width == 0 && allows(stage, width));
    if (!fits)
      return emitError() << "cannot compute vectors of " << width
                         << " lanes in stage " << number
                         << " of its grid; some access is not aligned to them";
  }
  return success();
}

// Warps are whole.
LogicalResult GridPlanner::checkThreads() {
  int64_t threads = given.getThreads();
  if (threads != 1 &&
      (!llvm::isPowerOf2_64(threads) || threads < kWarp || threads > 1024))
    return emitError() << "has " << threads
                       << " threads per block in its grid; it must be 1, or a "
                          "power of two from 32 to 1024";
  return success();
}

// Registers are few, and the sums of a block's only team need none.
LogicalResult GridPlanner::checkRowSums() {
  if (grid.sumsInRegisters && grid.team == grid.threads &&
      ownSums(grid.team) > kMostSums)
    return emitError() << "adds up " << ownSums(grid.team)
                       << " sums per thread in registers in its grid; more "
                          "than "
                       << kMostSums << " do not fit";
  return success();
}

LogicalResult GridPlanner::checkGiven() {
  if (plan.rowsPerBlock > 1 && failed(checkRowSums()))
    return failure();
  if (plan.kind == nn::KernelTemplate::column &&
      columnBytes(grid.widths.front()) > kSharedBytes)
    return emitError() << "needs " << columnBytes(grid.widths.front())
                       << " bytes of shared memory for its grid, more than "
                       << kSharedBytes;
  if (grid.tableRows > kTableRows)
    return emitError() << "has " << grid.tableRows
                       << " rows of the table per block in its grid; at most "
                       << kTableRows << " fit";
  if (given.getWidths() != ArrayRef<int64_t>(grid.widths))
    return emitError() << "has vectors in its grid that would add up a row in "
                          "another order; a stage that reduces rows has the "
                          "width that plan-grids chooses";
  using Number = std::tuple<StringRef, int64_t, int64_t>;
  for (auto [name, own, built] :
       {Number("blocks", given.getBlocks(), grid.blocks),
        Number("vectors", given.getVectors(), grid.vectors),
        Number("team", given.getTeam(), grid.team),
        Number("sums_in_registers", given.getSumsInRegisters(),
               grid.sumsInRegisters),
        Number("across", given.getAcross(), grid.across),
        Number("table_rows", given.getTableRows(), grid.tableRows)})
    if (own != built)
      return emitError() << "has " << own << " as '" << name
                         << "' in its grid, but needs " << built;
  return success();
}
