// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reduction of --reduce-hook=power-sgd (runtime/abi/power_sgd.h): of each
// matrix M of the residual the ranks send P = M Q and then Q = Mᵀ P, where P
// has been made orthonormal. Their sum over ranks is P Qᵀ, and what it lacks of
// M stays in the residual.
//
// The factors have few vectors, so each product is a pass over the matrix that
// is bound by memory. Sums run in lanes of a fixed number, so no processor
// changes a bit.
#include "runtime/comm/power_sgd.h"

#include "runtime/abi/power_sgd.h"
#include "runtime/comm/compressed_reduction.h"
#include "runtime/comm/reduce_scatter.h"
#include "runtime/numeric/each_processor.h"
#include "runtime/numeric/init_values.h"

#include <algorithm>
#include <cmath>

namespace fsdpc::runtime {

namespace {

// Sums of products in lanes (runtime/abi/power_sgd.h).
template <typename T, int64_t lanes>
[[gnu::always_inline]] inline T sumInLanes(const float *a, const float *b,
                                           int64_t length) {
  T sums[lanes] = {};
  int64_t whole = length / lanes * lanes;
  for (int64_t i = 0; i < whole; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane)
      sums[lane] += T(a[i + lane]) * T(b[i + lane]);
  for (int64_t i = whole; i < length; ++i)
    sums[i - whole] += T(a[i]) * T(b[i]);
  for (int64_t half = lanes / 2; half > 0; half /= 2)
    for (int64_t lane = 0; lane < half; ++lane)
      sums[lane] += sums[lane + half];
  return sums[0];
}

FSDPC_EACH_PROCESSOR
float dot(const float *a, const float *b, int64_t length) {
  return sumInLanes<float, powerRowLanes>(a, b, length);
}

// Norms and shares are f64: squares of small gradients are no f32.
FSDPC_EACH_PROCESSOR
double wideDot(const float *a, const float *b, int64_t length) {
  return sumInLanes<double, powerLanes>(a, b, length);
}

FSDPC_EACH_PROCESSOR
void addScaled(const float *from, float factor, int64_t count, float *to) {
  for (int64_t i = 0; i < count; ++i)
    to[i] += factor * from[i];
}

// Begins, or goes on with, the right factor of a matrix. A vector that has
// become zero would stay so, since P = M Q.
void beginRight(const Member &member, PowerShape shape, int64_t rank,
                float *right) {
  for (int64_t k = 0; k < rank; ++k) {
    float *vector = right + k * shape.columns;
    if (wideDot(vector, vector, shape.columns) == 0)
      applyInitRule({InitRule::normal, {0, 1}}, member.name, powerSeed,
                    k * shape.columns, shape.columns, vector);
  }
  orthonormaliseFactor(right, rank, shape.columns);
}

// P = M Q.
void multiplyRight(const float *matrix, const float *right, PowerShape shape,
                   int64_t rank, float *left) {
  for (int64_t i = 0; i < shape.rows; ++i)
    for (int64_t k = 0; k < rank; ++k)
      left[k * shape.rows + i] = dot(matrix + i * shape.columns,
                                     right + k * shape.columns, shape.columns);
}

// Q = Mᵀ P.
void multiplyLeft(const float *matrix, const float *left, PowerShape shape,
                  int64_t rank, float *right) {
  std::fill_n(right, rank * shape.columns, 0.0f);
  for (int64_t i = 0; i < shape.rows; ++i)
    for (int64_t k = 0; k < rank; ++k)
      addScaled(matrix + i * shape.columns, left[k * shape.rows + i],
                shape.columns, right + k * shape.columns);
}

// Sums over the ranks, in place and in their order.
void sumOverRanks(Communicator &ranks, float *values, int64_t elements) {
  int64_t part = powerPart(elements, ranks.size());
  float *own = values + ranks.rank() * part;
  ranks.reduceScatter({values, WireType::f32, WireType::f32, elements, part,
                       own,
                       /*add=*/false});
  ranks.allGather(own, values, size_t(part) * sizeof(float));
}

// The left factors of all members. Right ones are the state.
float *leftFactors(const CompressedReduction &reduction) {
  return reinterpret_cast<float *>(reduction.exchanged);
}

// Calls body(member, shape, left, right) for each member, with its factors, of
// which each has its vectors one after the other; of a member that is not
// compressed `left` is its gradient and `right` null.
template <typename Body>
void forEachFactor(const CompressedReduction &reduction, const Body &body) {
  int64_t rank = reduction.compression.amount;
  float *left = leftFactors(reduction), *right = reduction.state;
  for (const Member &member : reduction.members) {
    PowerShape shape = powerShapeOf(member.shape);
    bool compressed = shape.isCompressed(rank);
    body(member, shape, left, compressed ? right : nullptr);
    left += compressed ? shape.rows * rank : member.elements;
    right += compressed ? shape.columns * rank : 0;
  }
}

// Adds elements [begin, begin + count) of the layout to the part of the sum
// that this rank is asked for.
void addToSum(const CompressedReduction &reduction, const float *values,
              int64_t begin, int64_t count) {
  int64_t first = std::max(begin, reduction.sumBegin);
  int64_t last =
      std::min(begin + count, reduction.sumBegin + reduction.sumElements);
  if (first < last)
    addScaled(values + (first - begin), 1, last - first,
              reduction.sum + (first - reduction.sumBegin));
}

// Adds P Qᵀ to the sum, and takes this rank's share of it from the residual.
void spread(const CompressedReduction &reduction, const Member &member,
            PowerShape shape, const float *left, const float *right,
            float share) {
  constexpr int64_t width = 256; // columns at a time
  float values[width];
  for (int64_t i = 0; i < shape.rows; ++i)
    for (int64_t j = 0; j < shape.columns; j += width) {
      int64_t count = std::min(width, shape.columns - j);
      std::fill_n(values, count, 0.0f);
      for (int64_t k = 0; k < reduction.compression.amount; ++k)
        addScaled(right + k * shape.columns + j, left[k * shape.rows + i],
                  count, values);
      int64_t begin = member.offset + i * shape.columns + j;
      addToSum(reduction, values, begin, count);
      addScaled(values, -share, count, reduction.residual + begin);
    }
}

} // namespace

// The second round removes what the first one's rounding has left.
void orthonormaliseFactor(float *vectors, int64_t count, int64_t length) {
  for (int64_t i = 0; i < count; ++i) {
    float *own = vectors + i * length;
    double before = std::sqrt(wideDot(own, own, length));
    for (int round = 0; round < 2; ++round)
      for (int64_t j = 0; j < i; ++j) {
        const float *other = vectors + j * length;
        addScaled(other, -float(wideDot(own, other, length)), length, own);
      }
    double after = std::sqrt(wideDot(own, own, length));
    // NaN and infinity are no reason to hide a gradient that is not finite.
    bool depends = after <= powerDependent * before && std::isfinite(before);
    for (int64_t k = 0; k < length; ++k)
      own[k] = depends ? 0 : float(own[k] / after);
  }
}

void reducePowerSgd(Communicator &ranks, const CompressedReduction &reduction) {
  int64_t rank = reduction.compression.amount;
  PowerSizes sizes;
  forEachFactor(reduction, [&](const Member &member, PowerShape shape,
                               float *left, float *right) {
    sizes.add(shape, rank);
    float *matrix = reduction.residual + member.offset;
    takeGradient(reduction, member, /*add=*/right != nullptr,
                 right ? matrix : left);
    if (!right)
      return;
    beginRight(member, shape, rank, right);
    multiplyRight(matrix, right, shape, rank, left);
  });
  sumOverRanks(ranks, leftFactors(reduction), sizes.left);
  forEachFactor(reduction, [&](const Member &member, PowerShape shape,
                               float *left, float *right) {
    if (!right)
      return;
    orthonormaliseFactor(left, rank, shape.rows);
    multiplyLeft(reduction.residual + member.offset, left, shape, rank, right);
  });
  sumOverRanks(ranks, reduction.state, sizes.right);
  if (!reduction.add)
    std::fill_n(reduction.sum, reduction.sumElements, 0.0f);
  forEachFactor(reduction, [&](const Member &member, PowerShape shape,
                               float *left, float *right) {
    if (right)
      spread(reduction, member, shape, left, right, 1 / float(ranks.size()));
    else
      addToSum(reduction, left, member.offset, member.elements);
  });
}

} // namespace fsdpc::runtime
