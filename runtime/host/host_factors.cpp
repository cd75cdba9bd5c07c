// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Averages of squares on the host: sums along rows and columns of this rank's
// gradients, the averages that follow from the sums of all ranks, and their
// products.
//
// Sums of rows and columns that ranks may have cut are exact (square_sum.h):
// those of rows over groups of 16 elements, which lie on one rank; those of
// columns over single squares, which are exact in f64. So their bits depend
// neither on ranks nor on threads. A small matrix travels as its squares
// (runtime/abi/factors.h), and every rank sums them alike.
#include "runtime/host/host_factors.h"

#include "runtime/core/factor_averages.h"
#include "runtime/host/column_squares.h"
#include "runtime/host/host_device.h"
#include "runtime/host/host_offload.h"
#include "runtime/host/host_squares.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace fsdpc::runtime {
namespace {

constexpr int64_t columnBlock = ColumnSquares::most; // a thread's at a time
constexpr int64_t rowBlock = 1024; // elements of a row, in whole groups

// The part of a member's gradient that this rank sums; [begin, end) counts from
// the member's first element.
struct Part {
  const float *values; // of element `begin`
  int64_t begin, end;
  float scale, limit; // as the optimizer sees an element

  float value(int64_t element) const {
    float scaled = values[element - begin] * scale;
    // After the scale, as the optimizer clips.
    return std::min(std::max(scaled, -limit), limit);
  }
  double square(int64_t element) const {
    double wide = value(element);
    return wide * wide;
  }
};

// Adds the elements [from, to) of a row to its sum. Groups count from the
// member's first element, and what they have of other rows is 0.
void sumRow(const Part &part, int64_t from, int64_t to, double *digits) {
  std::array<float, rowBlock> block;
  SquareSum sum;
  for (int64_t base = from / squareGroup * squareGroup; base < to;
       base += rowBlock) {
    int64_t count = std::min(rowBlock, to - base);
    for (int64_t i = 0; i < count; ++i)
      block[size_t(i)] = base + i < from ? 0 : part.value(base + i);
    addSquares(block.data(), count, sum);
  }
  sum.addTo(digits);
}

// Adds to the sums of columns [first, last) of one matrix, which begins at
// element `base`.
void sumColumns(const Part &part, const FactorShape &shape, int64_t base,
                int64_t first, int64_t last, double *digits) {
  ColumnSquares sums;
  // Rows that this rank holds a part of.
  int64_t low = std::max<int64_t>((part.begin - base) / shape.columns, 0),
          high =
              std::min((part.end - 1 - base) / shape.columns + 1, shape.rows);
  for (int64_t row = low; row < high; ++row) {
    int64_t start = base + row * shape.columns + first;
    int64_t from = std::max<int64_t>(part.begin - start, 0),
            to = std::min(part.end - start, last - first);
    if (from < to)
      sums.addRow(part.values + (start + from - part.begin), from, to,
                  part.scale, part.limit);
  }
  sums.addTo(last - first, digits);
}

// Updates the averages of a member and writes its factors.
void updateMember(const FactorAverages &member, const double *sums,
                  double weight, double eps, double *factors) {
  for (int64_t i = 0; i < member.rowCount(); ++i)
    updateRow(member, sums, weight, i);
  for (int64_t i = 0; i < member.columnCount(); ++i)
    updateColumn(member, sums, weight, i, factors);
  for (int64_t matrix = 0; member.factored && matrix < member.matrices;
       ++matrix) {
    double digits[normDigits];
    sumOfRows(member, matrix, 0, 1).write(digits);
    double mean = meanOfRows(member, digits, eps);
    for (int64_t i = matrix * member.rows; i < (matrix + 1) * member.rows; ++i)
      factors[member.first + i] = member.ofRows[i] / mean;
  }
}

} // namespace

int64_t countOf(const std::vector<MemberFactors> &members) {
  // The numbers of the last member end where those of the layout end.
  return members.empty() ? 0
                         : members.back().first + members.back().shape.count();
}

static int64_t sumCountOf(const std::vector<MemberFactors> &members) {
  return members.empty()
             ? 0
             : members.back().firstSum + members.back().shape.sumCount();
}

void *variancesOf(const LayoutBuffers &buffers, const Member &member,
                  size_t index, const double *factors, int64_t from, int64_t to,
                  float *values) {
  const MemberFactors &own = buffers.factors[index];
  const FactorShape &shape = own.shape;
  const double *rows = factors + own.first, *columns = rows + shape.rowCount();
  int64_t element = from - member.offset, end = to - member.offset;
  float *next = values;
  while (element < end) {
    int64_t row = element / shape.columns, column = element % shape.columns;
    int64_t count = std::min(shape.columns - column, end - element);
    // A vector has no rows: its columns are its elements.
    double ofRow = shape.factored ? rows[row] : 1;
    // The columns of the matrix in which the row lies; a parameter of more
    // dimensions is several matrices.
    const double *ofColumns = columns + row / shape.rows * shape.columns;
    for (int64_t i = 0; i < count; ++i)
      *next++ = float(ofRow * ofColumns[column + i]);
    element += count;
  }
  // The kernel adds its position in bytes again. The address itself may lie
  // outside of the block, so it is computed as a number.
  auto place = reinterpret_cast<uintptr_t>(values) -
               uintptr_t(from - buffers.partBegin) * sizeof(float);
  return reinterpret_cast<void *>(place);
}

// Adds the elements [first, last) of a layout, of which `gradient` is the first
// one's.
void HostDevice::addFactors(const fsdpc_rank &rank, int32_t index,
                            const float *gradient, int64_t first, int64_t last,
                            float scale, float limit, double *sums) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  const LayoutBuffers &buffers = rank.layouts[size_t(index)];
  forEachMember(
      layout, first, last, [&](size_t member, int64_t from, int64_t to) {
        const MemberFactors &factors = buffers.factors[member];
        const FactorShape &shape = factors.shape;
        int64_t offset = layout.members[member].offset;
        Part part{gradient + (from - first), from - offset, to - offset, scale,
                  limit};
        double *rows = sums + factors.firstSum,
               *columns = rows + shape.rowCount() * normDigits;
        if (shape.sumsElements()) {
          for (int64_t i = part.begin; i < part.end; ++i)
            rows[i] = part.square(i);
          return;
        }
        int64_t width = shape.columns, height = shape.rows;
        // Rows that this rank holds a part of; the ranks' parts of a row add up
        // in the all-reduce.
        int64_t firstRow = part.begin / width,
                rowCount = (part.end - 1) / width + 1 - firstRow;
        parallelFor(rowCount, 16, [&](int64_t begin, int64_t end) {
          for (int64_t row = firstRow + begin; row < firstRow + end; ++row)
            sumRow(part, std::max(row * width, part.begin),
                   std::min((row + 1) * width, part.end),
                   rows + row * normDigits);
        });
        int64_t blocks = (width + columnBlock - 1) / columnBlock;
        int64_t firstMatrix = part.begin / (width * height),
                count = (part.end - 1) / (width * height) + 1 - firstMatrix;
        parallelFor(count * blocks, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            int64_t matrix = firstMatrix + i / blocks;
            int64_t low = i % blocks * columnBlock,
                    high = std::min(low + columnBlock, width);
            sumColumns(part, shape, matrix * width * height, low, high,
                       columns + (matrix * width + low) * normDigits);
          }
        });
      });
}

// Sums the part of the layout for which this rank answers. A piece of it adds
// to the digits of those before, which stay whole numbers.
void HostDevice::sumFactors(const fsdpc_rank &rank, int32_t index,
                            const void *scale, double clipValue, double *sums) {
  const LayoutBuffers &buffers = rank.layouts[size_t(index)];
  float limit =
      clipValue > 0 ? float(clipValue) : std::numeric_limits<float>::infinity();
  std::fill_n(sums, sumCountOf(buffers.factors), 0.0);
  sumPieces(rank, index, rank.manifest.layouts[size_t(index)].gradientOffloaded,
            memberSumOperands(rank, index, scale),
            [&](const OptimizerOperands &operands, int64_t from, int64_t to) {
              addFactors(rank, index,
                         elementOf(operands.list[1], from - buffers.partBegin),
                         from, to, *static_cast<const float *>(scale), limit,
                         sums);
            });
}

void HostDevice::factorSums(fsdpc_rank &rank, int32_t count,
                            const int32_t *layouts, const void *scale,
                            double clipValue, void *sums) {
  layouts = keep(FSDPC_STREAM_COMPUTE, layouts, count);
  run(FSDPC_STREAM_COMPUTE, [=, this, &rank] {
    auto *to = static_cast<double *>(sums);
    for (int32_t i = 0; i < count; ++i) {
      sumFactors(rank, layouts[i], scale, clipValue, to);
      to += sumCountOf(rank.layouts[size_t(layouts[i])].factors);
    }
  });
}

// All ranks have the same sums and keep all averages, so all update them alike.
// A step that the optimizers skip leaves them.
void HostDevice::updateFactors(fsdpc_rank &rank, int32_t count,
                               const int32_t *layouts, const void *sums,
                               double eps, double power, void *factors) {
  int64_t updates = rank.numbers.updates;
  layouts = keep(FSDPC_STREAM_COMPUTE, layouts, count);
  run(FSDPC_STREAM_COMPUTE, [=, this, &rank] {
    if (reported.nonFinite >= 0)
      return;
    auto *ofLayout = static_cast<double *>(factors);
    auto *summed = static_cast<const double *>(sums);
    for (int32_t i = 0; i < count; ++i) {
      const LayoutBuffers &buffers = rank.layouts[size_t(layouts[i])];
      for (size_t m = 0; m < buffers.factors.size(); ++m) {
        const MemberFactors &member = buffers.factors[m];
        // Steps count from the one that the member was first trained in.
        double weight = std::pow(double(updates + 1 - buffers.since[m]), power);
        updateMember(averagesOf(member), summed, weight, eps, ofLayout);
      }
      ofLayout += countOf(buffers.factors);
      summed += sumCountOf(buffers.factors);
    }
  });
}

} // namespace fsdpc::runtime
