// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions that send the sign of each element, and per block of elements the
// mean of their magnitudes (--reduce-hook=one-bit; Seide et al., 1-Bit
// Stochastic Gradient Descent, 2014; with the scales of Karimireddy et al.,
// Error Feedback Fixes SignSGD, 2019). In C++17, as kernels for GPUs include
// it.
#pragma once

#include "runtime/abi/compression.h"
#include "runtime/support/concat.h"

namespace fsdpc {

/// Signs travel in words of 32 bits, so a smaller block would pad its only
/// word.
constexpr int64_t signsOfWord = 32;

/// Splits a member's elements into blocks. The last block may be short. Each
/// block travels as its scale, followed by the words of its signs.
struct SignBlocks {
  int64_t block = signsOfWord; ///< elements of a block

  static constexpr int64_t signWords(int64_t elements) {
    return (elements + signsOfWord - 1) / signsOfWord;
  }
  constexpr int64_t blocks(int64_t elements) const {
    return (elements + block - 1) / block;
  }
  /// Returns how many words `elements` take, scales included.
  constexpr int64_t words(int64_t elements) const {
    return blocks(elements) + elements / block * signWords(block) +
           signWords(elements % block);
  }
};

/// The amount is the number of elements that share a scale.
class OneBit final : public CompressionInfo {
public:
  static constexpr int64_t mostBlock = 65536;

  OneBit()
      : CompressionInfo("one-bit", "one_bit",
                        {"BLOCK", "block size", mostBlock, signsOfWord},
                        {"ui32", "W", sizeof(uint32_t)}) {
    noEffect = "all layouts are so small that signs and scales are no fewer "
               "bytes; omit it";
  }

  /// Leaves a layout alone if its scales and signs are as many words as it has
  /// elements.
  int64_t amountFor(double value, int64_t elements,
                    const MemberShapes &shapes) const override {
    auto block = int64_t(value);
    return sentElements(block, shapes) < elements ? block : 0;
  }
  std::string faultOf(int64_t amount, int64_t /*elements*/) const override {
    if (amount < signsOfWord || amount > mostBlock)
      return concat("has a one_bit of ", amount, "; it must be from ",
                    signsOfWord, " to ", mostBlock);
    return "";
  }
  int64_t sentElements(int64_t amount,
                       const MemberShapes &shapes) const override {
    int64_t words = 0;
    for (const std::vector<int64_t> &shape : shapes)
      words += SignBlocks{amount}.words(elementsOf(shape));
    return words;
  }
  int64_t exchangedBytes(int64_t amount, const MemberShapes &shapes,
                         int64_t ranks) const override {
    return ranks * sentBytes(amount, shapes);
  }
  /// A sum of magnitudes for each word of signs. Members take turns.
  int64_t deviceBytes(int64_t elements, int64_t amount) const override {
    return SignBlocks{amount}.blocks(elements) * SignBlocks::signWords(amount) *
           int64_t(sizeof(double));
  }

private:
  /// The other extents of an empty member may have a product beyond 64 bits.
  static int64_t elementsOf(const std::vector<int64_t> &shape) {
    int64_t elements = 1;
    for (int64_t extent : shape)
      if (extent == 0)
        return 0;
    for (int64_t extent : shape)
      elements *= extent;
    return elements;
  }
};

} // namespace fsdpc
