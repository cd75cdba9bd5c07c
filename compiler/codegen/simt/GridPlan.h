// How the plan of a kernel is mapped to a grid of threads, each of which
// computes vectors of consecutive elements.
//
//   map     consecutive threads take consecutive vectors, over all rows
//   row     a team of threads (a warp or a block) shares a row; if rows are
//           added up in blocks, a block of threads takes a block of rows
//   column  the threads of a line own columns, and the lines of a block
//           share the rows
//   embedding_grad  a block owns rows of the table, its threads own columns
#pragma once

#include "compiler/analysis/kernels/KernelPlan.h"

namespace fsdpc::codegen::simt {

inline constexpr int64_t kWarp = 32;

struct GridOptions {
  int64_t threads = 256;  // per block: 1, or 32, 64, … 1024
  bool roundsBf16 = true; // the processor has an instruction for it
};

struct GridPlan {
  int64_t blocks = 1, threads = 1;
  llvm::SmallVector<int64_t, 3> widths; // lanes per vector, for each stage
  int64_t vectors = 1;                  // map: per thread
  int64_t team = 1;                     // row: threads that share a row
  bool sumsInRegisters = false;         // row: sums of rows added up in blocks
  int64_t across = 1;                   // column: threads per line
  int64_t tableRows = 1;                // embedding_grad: per block
};

/// Returns, for each operand and then each result of the kernel, a number of
/// bytes that divides its address: nn.alignments, or 16 if the kernel has none.
llvm::SmallVector<int64_t> alignmentsOf(mlir::func::FuncOp kernel);

/// Plans the grid of a kernel. `plan` must keep no values.
GridPlan planGrid(mlir::func::FuncOp kernel, analysis::KernelPlan &plan,
                  const GridOptions &options);

} // namespace fsdpc::codegen::simt
