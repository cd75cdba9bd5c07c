// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference of random numbers: Philox4x32-10 (Salmon et al., Parallel
// Random Numbers: As Easy as 1, 2, 3, 2011), with the keys that
// NNElementwise.td defines.
#include "compiler/dialects/nn/reference/Families.h"

#include <array>
#include <vector>

using namespace mlir;

namespace fsdpc::nn::reference {

using Words = std::array<uint32_t, 4>;

// Ten rounds; the constants are the multipliers and Weyl increments of the
// paper.
static Words philox(Words counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0,
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
               static_cast<uint32_t>(product0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

// Returns the word of each of `count` elements. `keys` are seed, microbatch and
// step, as fsdp.random gives them.
static std::vector<uint32_t> draw(const ReferenceTensor &keys, uint64_t op,
                                  int64_t count) {
  auto key = [&](int i) { return static_cast<uint32_t>(keys.ints[i]); };
  std::vector<uint32_t> words;
  // One evaluation gives the words of four consecutive elements.
  for (int64_t i = 0; i < count; i += 4)
    for (uint32_t word : philox({static_cast<uint32_t>(i / 4),
                                 static_cast<uint32_t>(op), key(2), key(3)},
                                key(0), key(1)))
      words.push_back(word);
  return words;
}

static void dropout(DropoutOp op, Inputs in, ReferenceTensors &out) {
  double ratio = op.getRatio().convertToDouble();
  std::vector<uint32_t> words = draw(in[1], op.getOp(), out[0].size());
  for (int64_t i = 0; i < out[0].size(); ++i) {
    // A multiple of 2⁻²⁴ in [0, 1). Kernels compare the 24 bits with
    // ceil(ratio · 2²⁴) as integers, which decides the same.
    double u = (words[i] >> 8) * 0x1p-24;
    // Scaled, so that the expectation stays that of the input.
    out[0].floats[i] = u >= ratio ? in[0].floats[i] / (1 - ratio) : 0;
  }
}

static void uniform(UniformOp op, Inputs in, ReferenceTensors &out) {
  std::vector<uint32_t> words = draw(in[0], op.getOp(), out[0].size());
  for (int64_t i = 0; i < out[0].size(); ++i)
    out[0].floats[i] = (2.0 * (words[i] >> 9) + 1) * 0x1p-24;
}

void addRandom(ReferenceTable &table) {
  table.add<DropoutOp>(dropout);
  table.add<UniformOp>(uniform);
}

} // namespace fsdpc::nn::reference
