// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses the order of each kind of reduction; see ReductionOrder.h for the
// rule. The numbers balance speed: a row needs several running values per
// register to hide the latency of an addition, and a GPU needs enough threads
// on few columns.
#include "compiler/analysis/kernels/ReductionOrder.h"

#include <algorithm>

using namespace fsdpc;
using namespace fsdpc::analysis;

int64_t analysis::fewestSteps(int64_t length, int64_t lanes) {
  int64_t best = 1, fewest = length;
  for (int64_t width = lanes; width >= 4; width /= 2)
    if (length / width + length % width < fewest) {
      best = width;
      fewest = length / width + length % width;
    }
  return best;
}

// Four registers of running values if the run fills them twice; then the width
// that needs the fewest steps.
llvm::SmallVector<RowPart, 3> analysis::rowParts(int64_t run, int64_t lanes) {
  llvm::SmallVector<int64_t, 3> widths;
  int64_t wide = std::min(4 * lanes, kWidestPart);
  if (run >= 2 * wide)
    widths.push_back(wide);
  if (int64_t best = fewestSteps(run, lanes); best > 1)
    widths.push_back(best);
  widths.push_back(1);

  llvm::SmallVector<RowPart, 3> parts;
  int64_t begin = 0;
  for (int64_t width : widths) {
    int64_t end = begin + (run - begin) / width * width;
    if (end > begin)
      parts.push_back({begin, end, width});
    begin = end;
  }
  return parts;
}

int64_t analysis::rowWidthOnGrid(int64_t count, int64_t run, int64_t team) {
  int64_t width = 4; // 16 bytes of f32
  while (width > 1 && (run % width != 0 || count / width < team))
    width /= 2;
  return width;
}

// Each vector costs an exponential that rescales the sums to its maximum. With
// vectors of 8 that is one exponential in nine. In bf16 such a vector is a load
// of 16 bytes.
int64_t analysis::onlineWidthOnGrid(int64_t count, int64_t run, int64_t team) {
  constexpr int64_t wide = 8;
  return run % wide == 0 && count / wide >= team
             ? wide
             : rowWidthOnGrid(count, run, team);
}

// A warp suffices for a short row, and keeps the sums of its columns in
// registers. With 24 columns for a thread, the four sums of a norm's gradient
// fill so many registers that a multiprocessor holds one block; four warps have
// 6 columns each.
int64_t analysis::teamOnGrid(int64_t count, int64_t threads) {
  constexpr int64_t shortRow = 512, mediumRow = 1024, warp = 32;
  if (count > mediumRow)
    return threads;
  return std::min(count > shortRow ? 4 * warp : warp, threads);
}

// Rows that are read twice should come from the second-level cache the second
// time. Blocks of 1024 threads have two rows at a time on a multiprocessor: at
// 100 KB a row, half of the 50 MB of an H100 and of the 40 MB of an A100.
int64_t analysis::threadsOnGrid(int64_t count, int64_t threads) {
  constexpr int64_t longRow = 16384, most = 1024;
  return threads > 1 && count >= longRow ? most : threads;
}

// With few columns, uses more lines of threads, as long as each line has rows
// and the threads of a line fill a cache line.
int64_t analysis::acrossOnGrid(int64_t kept, int64_t rows, int64_t threads) {
  constexpr int64_t leastAcross = 8; // 16 bytes each fill a cache line
  constexpr int64_t fewBlocks = 264; // two per multiprocessor of a large GPU
  int64_t vectors = kept % 4 == 0 ? kept / 4 : kept % 2 == 0 ? kept / 2 : kept;
  int64_t across = threads;
  while (across > leastAcross && vectors / across < fewBlocks &&
         2 * threads / across <= rows)
    across /= 2;
  return across;
}
