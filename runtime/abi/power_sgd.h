// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions that send factors of low rank in place of matrices
// (--reduce-hook=power-sgd; Vogels, Karimireddy and Jaggi, PowerSGD, 2019). The
// rules of what is compressed are those of torch's powerSGD_hook. In C++17, as
// kernels for GPUs include it.
#pragma once

#include "runtime/abi/compression.h"
#include "runtime/support/concat.h"
#include "runtime/support/round_up.h"

namespace fsdpc {

constexpr int64_t mostPowerRank = 65536;

/// How sums are formed, the same on all devices. Products of a matrix's rows
/// are f32 sums in powerRowLanes lanes, and those of a factor's vectors f64
/// sums in powerLanes: element i in lane i modulo that. The lanes are then
/// added in halves. A GPU has a thread for each of the latter.
constexpr int64_t powerRowLanes = 16, powerLanes = 256;

/// A vector that keeps less than this of its length depends on those before it:
/// what is left is rounding.
constexpr double powerDependent = 1e-6;

/// The seed of the right factors with which a run begins: equal on all ranks
/// and in all runs, as torch's random_seed of 0.
constexpr uint64_t powerSeed = 0x506f776572534744; ///< "PowerSGD"

/// A parameter as a matrix: its first axis by all others.
struct PowerShape {
  int64_t rows = 1, columns = 1;

  /// Returns true if both factors together have less than half of the elements.
  /// Any other parameter is reduced as it is.
  bool isCompressed(int64_t rank) const {
    return 2 * (rows + columns) * rank < rows * columns;
  }
};

/// The other extents of an empty parameter may have a product beyond 64 bits.
template <typename Shape> PowerShape powerShapeOf(const Shape &shape) {
  for (int64_t extent : shape)
    if (extent == 0)
      return {0, 0};
  PowerShape result;
  bool isFirst = true;
  for (int64_t extent : shape) {
    (isFirst ? result.rows : result.columns) *= extent;
    isFirst = false;
  }
  return result;
}

/// The elements of the two sums over ranks that a reduction of a layout takes.
struct PowerSizes {
  int64_t left = 0;  ///< of left factors, and of what is not compressed
  int64_t right = 0; ///< of right factors

  void add(PowerShape shape, int64_t rank) {
    if (shape.isCompressed(rank)) {
      left += shape.rows * rank;
      right += shape.columns * rank;
    } else {
      left += shape.rows * shape.columns;
    }
  }
};

/// Returns the elements of each rank's part of such a sum: whole lines of the
/// cache.
constexpr int64_t powerPart(int64_t elements, int64_t ranks) {
  constexpr int64_t line = 16;
  return roundUp((elements + ranks - 1) / ranks, line);
}

/// Returns the bytes of such a sum with its padding.
constexpr int64_t powerBytes(int64_t elements, int64_t ranks) {
  return 4 * ranks * powerPart(elements, ranks);
}

/// The amount is the rank of the factors. Ranks keep the right factors of the
/// last reduction, with which the next one begins.
class PowerSgd final : public CompressionInfo {
public:
  /// Sizes are compared by products with twice the rank, which must fit 64
  /// bits.
  static constexpr int64_t mostElements = int64_t(1) << 44;

  PowerSgd()
      : CompressionInfo("power-sgd", "power_sgd",
                        {"RANK", "rank", mostPowerRank},
                        {"f32", "R", sizeof(float), "factors"}) {
    static constexpr CompressionState right = {"right factor", "right",
                                               "powerRank", powerSeed};
    state = &right;
    foreignNames = {"powerSGD_hook", "batched_powerSGD_hook"};
    noEffect = "no trainable parameter is more than twice as large as its "
               "factors; use a smaller rank, or omit it";
  }

  /// Leaves a layout alone if it compresses none of the members.
  int64_t amountFor(double value, int64_t /*elements*/,
                    const MemberShapes &shapes) const override {
    auto rank = int64_t(value);
    for (const std::vector<int64_t> &shape : shapes)
      if (powerShapeOf(shape).isCompressed(rank))
        return rank;
    return 0;
  }
  std::string faultOf(int64_t amount, int64_t elements) const override {
    if (amount < 1 || amount > mostPowerRank)
      return concat("has a power_sgd of ", amount, "; it must be from 1 to ",
                    mostPowerRank);
    if (elements > mostElements)
      return concat("has ", elements, " elements, more than the ", mostElements,
                    " that power_sgd can count; cut it with --layout-size");
    return "";
  }
  int64_t sentElements(int64_t amount,
                       const MemberShapes &shapes) const override {
    PowerSizes sizes = sizesOf(amount, shapes);
    return sizes.left + sizes.right;
  }
  /// The right factors are summed where they are kept.
  int64_t exchangedBytes(int64_t amount, const MemberShapes &shapes,
                         int64_t ranks) const override {
    return powerBytes(sizesOf(amount, shapes).left, ranks);
  }
  /// Three products of the matrix with a factor.
  double flops(int64_t elements, int64_t amount) const override {
    return 6.0 * double(elements) * double(amount);
  }
  std::vector<int64_t>
  stateShape(int64_t amount, const std::vector<int64_t> &shape) const override {
    PowerShape matrix = powerShapeOf(shape);
    if (!matrix.isCompressed(amount))
      return {};
    return {amount, matrix.columns};
  }
  int64_t stateBytes(int64_t amount, const MemberShapes &shapes,
                     int64_t ranks) const override {
    return powerBytes(sizesOf(amount, shapes).right, ranks);
  }
  /// The lanes of a sum.
  int64_t deviceBytes(int64_t /*elements*/, int64_t /*amount*/) const override {
    return powerLanes * int64_t(sizeof(double));
  }

private:
  static PowerSizes sizesOf(int64_t rank, const MemberShapes &shapes) {
    PowerSizes sizes;
    for (const std::vector<int64_t> &shape : shapes)
      sizes.add(powerShapeOf(shape), rank);
    return sizes;
  }
};

} // namespace fsdpc
