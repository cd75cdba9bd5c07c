// Adafactor's averages of squares on the host: sums along rows and columns of
// this rank's gradients, the averages that follow from the sums of all ranks,
// and their products.
//
// A thread has rows, or a block of columns, of its own, and adds in the order
// of the elements, so the sums do not depend on the number of threads. Squares
// of f32 are exact in f64.
#include "runtime/host/host_factors.h"

#include "runtime/host/host_device.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace fsdpc::runtime {
namespace {

// A row of 64 f32 is four cache lines, read whole.
constexpr int64_t columnBlock = 64; // columns that a thread sums at a time

// The part of a member's gradient that this rank sums; [begin, end) counts from
// the member's first element.
struct Part {
  const float *values; // of element `begin`
  int64_t begin, end;
  float scale, limit; // as the optimizer sees an element

  double square(int64_t element) const {
    float value = values[element - begin] * scale;
    // After the scale, as the optimizer clips.
    double clipped = std::min(std::max(value, -limit), limit);
    return clipped * clipped;
  }
};

double squaresOfRow(const Part &part, int64_t from, int64_t to) {
  double sum = 0;
  for (int64_t i = from; i < to; ++i)
    sum += part.square(i);
  return sum;
}

// Sums columns [first, last) of one matrix, which begins at element `base`.
void sumColumns(const Part &part, const FactorShape &shape, int64_t base,
                int64_t first, int64_t last, double *sums) {
  int64_t count = last - first;
  std::array<double, columnBlock> block = {};
  for (int64_t row = 0; row < shape.rows; ++row) {
    int64_t start = base + row * shape.columns + first;
    int64_t from = std::max<int64_t>(part.begin - start, 0),
            to = std::min(part.end - start, count);
    for (int64_t i = from; i < to; ++i)
      block[size_t(i)] += part.square(start + i);
  }
  std::copy_n(block.begin(), count, sums);
}

// Tensor.lerp_ in f64, rounded once.
float blend(float old, double value, double weight) {
  return float(double(old) + weight * (value - double(old)));
}

// Updates the averages of a member's matrices, and puts the factors in the
// place of the sums.
void updateMatrices(const MemberFactors &member, double weight, double eps,
                    double *sums) {
  const FactorShape &shape = member.shape;
  double *columns = sums + shape.rowCount();
  for (int64_t matrix = 0; matrix < shape.matrices; ++matrix) {
    double total = 0;
    for (int64_t i = 0; i < shape.rows; ++i) {
      int64_t at = matrix * shape.rows + i;
      member.rows[at] =
          blend(member.rows[at], sums[at] / double(shape.columns), weight);
      total += member.rows[at];
    }
    // eps keeps the quotient finite for a matrix without gradients.
    double mean = std::max(total / double(shape.rows), eps);
    for (int64_t i = 0; i < shape.rows; ++i) {
      int64_t at = matrix * shape.rows + i;
      sums[at] = member.rows[at] / mean;
    }
    for (int64_t i = 0; i < shape.columns; ++i) {
      int64_t at = matrix * shape.columns + i;
      member.columns[at] =
          blend(member.columns[at], columns[at] / double(shape.rows), weight);
      columns[at] = member.columns[at];
    }
  }
}

} // namespace

int64_t countOf(const std::vector<MemberFactors> &members) {
  // The numbers of the last member end where those of the layout end.
  return members.empty() ? 0
                         : members.back().first + members.back().shape.count();
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
    // Of the matrix that the row lies in; a parameter of more dimensions is
    // several matrices.
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

// Sums the part of the layout for which this rank answers.
void HostDevice::sumFactors(const fsdpc_rank &rank, int32_t index, float scale,
                            double clipValue, double *sums) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  const LayoutBuffers &buffers = rank.layouts[size_t(index)];
  int64_t first = buffers.ownOf(rank.job.rank);
  const float *own =
      buffers.gradientShard + (first - buffers.shardOf(rank.job.rank));
  float limit =
      clipValue > 0 ? float(clipValue) : std::numeric_limits<float>::infinity();
  std::fill_n(sums, countOf(buffers.factors), 0.0);
  forEachMember(
      layout, first, first + buffers.own,
      [&](size_t member, int64_t from, int64_t to) {
        const MemberFactors &factors = buffers.factors[member];
        const FactorShape &shape = factors.shape;
        int64_t offset = layout.members[member].offset;
        Part part{own + (from - first), from - offset, to - offset, scale,
                  limit};
        double *rows = sums + factors.first, *columns = rows + shape.rowCount();
        int64_t width = shape.columns, height = shape.rows;
        if (shape.factored) {
          // Rows that this rank holds a part of; the ranks' parts of a row add
          // up in the all-reduce.
          int64_t firstRow = part.begin / width,
                  count = (part.end - 1) / width + 1 - firstRow;
          parallelFor(count, 16, [&](int64_t begin, int64_t end) {
            for (int64_t row = firstRow + begin; row < firstRow + end; ++row)
              rows[row] = squaresOfRow(part, std::max(row * width, part.begin),
                                       std::min((row + 1) * width, part.end));
          });
        }
        int64_t blocks = (width + columnBlock - 1) / columnBlock;
        int64_t firstMatrix = part.begin / (width * height),
                count = (part.end - 1) / (width * height) + 1 - firstMatrix;
        parallelFor(count * blocks, 1, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            int64_t matrix = firstMatrix + i / blocks;
            int64_t low = i % blocks * columnBlock,
                    high = std::min(low + columnBlock, width);
            sumColumns(part, shape, matrix * width * height, low, high,
                       columns + matrix * width + low);
          }
        });
      });
}

void HostDevice::factorSums(fsdpc_rank &rank, int32_t count,
                            const int32_t *layouts, const void *scale,
                            double clipValue, void *sums) {
  layouts = keep(FSDPC_STREAM_COMPUTE, layouts, count);
  run(FSDPC_STREAM_COMPUTE, [=, this, &rank] {
    auto *to = static_cast<double *>(sums);
    for (int32_t i = 0; i < count; ++i) {
      sumFactors(rank, layouts[i], *static_cast<const float *>(scale),
                 clipValue, to);
      to += countOf(rank.layouts[size_t(layouts[i])].factors);
    }
  });
}

// All ranks have the same sums and keep all averages, so all update them alike.
// A step that the optimizers skip leaves them.
void HostDevice::updateFactors(fsdpc_rank &rank, int32_t count,
                               const int32_t *layouts, void *sums, double eps,
                               double power) {
  int64_t updates = rank.updates;
  layouts = keep(FSDPC_STREAM_COMPUTE, layouts, count);
  run(FSDPC_STREAM_COMPUTE, [=, this, &rank] {
    if (reported.nonFinite >= 0)
      return;
    auto *ofLayout = static_cast<double *>(sums);
    for (int32_t i = 0; i < count; ++i) {
      const LayoutBuffers &buffers = rank.layouts[size_t(layouts[i])];
      for (size_t m = 0; m < buffers.factors.size(); ++m) {
        const MemberFactors &member = buffers.factors[m];
        // Steps count from the one that the member was first trained in.
        double weight = std::pow(double(updates + 1 - buffers.since[m]), power);
        double *own = ofLayout + member.first;
        if (member.shape.factored) {
          updateMatrices(member, weight, eps, own);
          continue;
        }
        // A vector keeps plain averages of squares, one per element.
        for (int64_t k = 0; k < member.shape.columns; ++k) {
          member.columns[k] = blend(member.columns[k], own[k], weight);
          own[k] = member.columns[k];
        }
      }
      ofLayout += countOf(buffers.factors);
    }
  });
}

} // namespace fsdpc::runtime
