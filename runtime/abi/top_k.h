// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions that send only the largest elements of a gradient
// (--reduce-hook=top-k; Aji and Heafield, Sparse Communication for Distributed
// Gradient Descent, 2017; with the error feedback of Stich et al., Sparsified
// SGD with Memory, 2018). In C++17, as kernels for GPUs include it.
#pragma once

#include "runtime/abi/compression.h"
#include "runtime/support/concat.h"

#include <cmath>

namespace fsdpc {

/// An element that travels: its place in the layout's flat buffer, and its
/// value.
struct ChosenElement {
  uint32_t index;
  float value;
};

/// A GPU chooses by counts of the elements of each segment, and of those of
/// each strip of several segments by a digit of their magnitudes.
constexpr int64_t selectionSegment = 4096, mostSelectionStrips = 1024;
constexpr int selectionDigits = 16;
constexpr int64_t selectionSegments(int64_t elements) {
  return (elements + selectionSegment - 1) / selectionSegment;
}
constexpr int64_t selectionStrips(int64_t elements) {
  return selectionSegments(elements) < mostSelectionStrips
             ? selectionSegments(elements)
             : mostSelectionStrips;
}

/// Returns the bytes that one rank sends to each other rank.
constexpr int64_t chosenBytes(int64_t chosen) {
  return chosen * int64_t(sizeof(ChosenElement));
}

/// The amount is the number of elements that each rank sends of a layout.
class TopK final : public CompressionInfo {
public:
  /// Layouts with more elements have places that an index cannot name.
  static constexpr int64_t mostElements = int64_t(1) << 32;

  TopK()
      : CompressionInfo("top-k", "top_k", {"X%", ""},
                        {"(i32+f32)", "T", sizeof(ChosenElement)}) {}

  /// A share of the elements, rounded up.
  int64_t amountFor(double value, int64_t elements,
                    const MemberShapes & /*shapes*/) const override {
    return int64_t(std::ceil(double(elements) * value / 100));
  }
  std::string faultOf(int64_t amount, int64_t elements) const override {
    if (amount < 1 || amount > elements)
      return concat("has a top_k of ", amount, ", but ", elements, " elements");
    if (elements > mostElements)
      return concat("has ", elements, " elements, more than the ", mostElements,
                    " that top_k can number; cut it with --layout-size");
    return "";
  }
  int64_t sentElements(int64_t amount,
                       const MemberShapes & /*shapes*/) const override {
    return amount;
  }
  int64_t exchangedBytes(int64_t amount, const MemberShapes & /*shapes*/,
                         int64_t ranks) const override {
    return ranks * chosenBytes(amount);
  }
  /// Two words per segment and for the threshold, and a word per digit of each
  /// strip.
  int64_t deviceBytes(int64_t elements, int64_t /*amount*/) const override {
    return 16 * (selectionSegments(elements) + 1) +
           8 * selectionDigits * selectionStrips(elements);
  }
};

} // namespace fsdpc
