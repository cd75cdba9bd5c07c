// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reduction of --reduce-hook=one-bit (runtime/abi/one_bit.h): a rank sends
// the residual's signs, and a scale per block. Each rank adds what all have
// sent, rank by rank, so that no bit depends on which part of the sum is asked
// for.
#include "runtime/abi/one_bit.h"
#include "runtime/comm/compressed_reduction.h"
#include "runtime/numeric/each_processor.h"
#include "runtime/numeric/sign_words.h"

#include <algorithm>

namespace fsdpc::runtime {

namespace {

// Writes the scale of a block and its signs.
FSDPC_EACH_PROCESSOR
void sendBlock(const float *values, int64_t count, uint32_t *words) {
  double magnitudes = 0;
  uint32_t *signs = words + 1;
  for (int64_t i = 0; i < count; i += signsOfWord) {
    SignWord word = signsOf(values + i, std::min(signsOfWord, count - i));
    *signs++ = word.signs;
    magnitudes += word.magnitudes;
  }
  *words = scaleBits(magnitudes, count);
}

// Adds elements [begin, end) of a block, or subtracts them.
FSDPC_EACH_PROCESSOR
void addBlock(const uint32_t *words, int64_t begin, int64_t end, bool negated,
              float *to) {
  for (int64_t i = begin; i < end;) {
    uint32_t scale = words[0], signs = words[1 + i / signsOfWord];
    int first = int(i % signsOfWord);
    int last = int(std::min(signsOfWord, first + end - i));
    for (int bit = first; bit < last; ++bit)
      to[bit - first] += signedScale(scale, signs, bit, negated);
    to += last - first;
    i += last - first;
  }
}

// Adds elements [begin, end) of a member, which a rank has sent as these words.
void addSigns(const uint32_t *words, SignBlocks shape, int64_t begin,
              int64_t end, bool negated, float *to) {
  for (int64_t i = begin; i < end;) {
    int64_t block = i / shape.block, first = i % shape.block;
    int64_t last = std::min(shape.block, first + end - i);
    addBlock(words + block * shape.words(shape.block), first, last, negated,
             to);
    to += last - first;
    i += last - first;
  }
}

// Calls body(member, words), with where the member's words begin among a
// rank's; returns how many a rank sends.
template <typename Body>
int64_t forEachMember(const CompressedReduction &reduction, SignBlocks shape,
                      const Body &body) {
  int64_t words = 0;
  for (const Member &member : reduction.members) {
    body(member, words);
    words += shape.words(member.elements);
  }
  return words;
}

} // namespace

void reduceOneBit(Communicator &ranks, const CompressedReduction &reduction) {
  SignBlocks shape = {reduction.compression.amount};
  auto *exchanged = reinterpret_cast<uint32_t *>(reduction.exchanged);
  int64_t count =
      forEachMember(reduction, shape, [](const Member &, int64_t) {});
  uint32_t *own = exchanged + ranks.rank() * count;
  forEachMember(reduction, shape, [&](const Member &member, int64_t begin) {
    float *values = reduction.residual + member.offset;
    takeGradient(reduction, member, /*add=*/true, values);
    for (int64_t i = 0; i < member.elements; i += shape.block)
      sendBlock(values + i, std::min(shape.block, member.elements - i),
                own + begin + shape.words(i));
    addSigns(own + begin, shape, 0, member.elements, /*negated=*/true, values);
  });
  ranks.allGather(own, exchanged, size_t(count) * sizeof(uint32_t));
  if (!reduction.add)
    std::fill_n(reduction.sum, reduction.sumElements, 0.0f);
  forEachMember(reduction, shape, [&](const Member &member, int64_t begin) {
    int64_t first = std::max(member.offset, reduction.sumBegin);
    int64_t last = std::min(member.offset + member.elements,
                            reduction.sumBegin + reduction.sumElements);
    for (int rank = 0; rank < ranks.size() && first < last; ++rank)
      addSigns(exchanged + rank * count + begin, shape, first - member.offset,
               last - member.offset, /*negated=*/false,
               reduction.sum + (first - reduction.sumBegin));
  });
}

} // namespace fsdpc::runtime
