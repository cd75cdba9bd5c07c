// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions that send only the largest elements of a gradient
// (--reduce-hook=top-k; Aji and Heafield, Sparse Communication for Distributed
// Gradient Descent, 2017; with the error feedback of Stich et al., Sparsified
// SGD with Memory, 2018). Compiler and runtime compute the sizes by the
// functions below.
#pragma once

#include <cmath>
#include <cstdint>

namespace fsdpc {

/// An element that travels: its place in the layout's flat buffer, and its
/// value.
struct ChosenElement {
  uint32_t index;
  float value;
};

/// Layouts with more elements have places that an index cannot name.
constexpr int64_t mostIndexedElements = int64_t(1) << 32;

/// Returns the elements that one rank sends of a layout: `percent` of them,
/// rounded up.
inline int64_t chosenElements(int64_t elements, double percent) {
  return int64_t(std::ceil(double(elements) * percent / 100));
}

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

} // namespace fsdpc
