// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The order in which a reduction combines the elements of a row. The rule:
//
//   The order is a function of the op (the shape that it reads and the axes
//   that it reduces) and of the target's vector length. It does not depend on
//   what else the op's kernel computes.
//
// One op may stand in two kernels: in the forward, and recomputed beside other
// ops in the backward. Its bits are the same in both, so `--recompute` and
// whatever else changes the grouping of ops changes no results. All that emits
// a reduction takes the order from here:
//
//   row     The elements of a row are numbered in runs, which lie adjacent in
//           the op's domain. Each run is cut into parts (rowParts), and element
//           i of a part of width w is added to running value i mod w. At the
//           end the running values are combined by halves, part after part.
//   column  The rows are added one after the other, in blocks of kRowBlock
//           (EmitColumns.cpp); on a GPU the lines of a block share them.
//   sums of rows in blocks   The rows of a block are added one after the
//           other; on a GPU the lines of a block share them.
//
// A kernel may compute the elements in vectors of any other width. Only which
// running value takes an element, and in which order it does, is fixed.
#pragma once

#include "llvm/ADT/SmallVector.h"

#include <cstdint>

namespace fsdpc::analysis {

/// A multiple of all widths of rowParts, for every vector length. A loop over a
/// row may be cut at its multiples without a change of the order.
inline constexpr int64_t kWidestPart = 64;

/// Rows of a column that are added up before their sum is added to the total.
/// It keeps the rounding error of long sums small.
inline constexpr int64_t kRowBlock = 256;

/// Returns the width that takes the fewest steps over `length` elements, in
/// whole vectors plus single elements: `lanes`, a half of it and so on down to
/// 4, or 1.
int64_t fewestSteps(int64_t length, int64_t lanes);

/// Elements of a run that share running values.
struct RowPart {
  int64_t begin, end; ///< in the run; whole multiples of the width
  int64_t width;      ///< number of running values, a power of two
};

/// Returns the parts of a run of `run` elements, in their order, on a processor
/// whose vectors hold `lanes` f32 values. The last one may have single
/// elements (width 1).
llvm::SmallVector<RowPart, 3> rowParts(int64_t run, int64_t lanes);

/// Returns the number of running values that a thread of a GPU has for a row of
/// `count` elements in runs of `run`, which `team` threads share: vectors of
/// this width go to the threads in turn.
int64_t rowWidthOnGrid(int64_t count, int64_t run, int64_t team);

/// Returns the same where one loop takes the maximum and the sum of a softmax.
int64_t onlineWidthOnGrid(int64_t count, int64_t run, int64_t team);

/// Returns how many of a block's `threads` share a row of `count` elements, or
/// the columns of rows that are added up in blocks. The block's other threads
/// take other rows.
int64_t teamOnGrid(int64_t count, int64_t threads);

/// Returns the threads of a block whose rows have up to `count` elements, at
/// least `threads`. A block of one thread (the emulation) stays one.
int64_t threadsOnGrid(int64_t count, int64_t threads);

/// Returns how many threads side by side own the `kept` columns of a reduction
/// over `rows` rows. The lines of a block, of which there are threads / across,
/// share the rows: each takes every n-th.
int64_t acrossOnGrid(int64_t kept, int64_t rows, int64_t threads);

} // namespace fsdpc::analysis
