// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's own CUDA kernels that send signs with a scale per block, one
// after the other as a device launches them, against the host's reduction on
// one rank.
#include "runtime/comm/compressed_reduction.h"
#include "tests/runtime/cuda/own_kernels.h"

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

class OwnSignKernels : public OwnKernelTest {
protected:
  // Reduces one member, with garbage where nothing is read.
  void expectAsOnTheHost(const std::vector<float> &gradient, int64_t block) {
    auto elements = int64_t(gradient.size());
    SignBlocks shape = {block};
    int64_t blocks = shape.blocks(elements), width = shape.signWords(block);
    auto words = size_t(shape.words(elements));
    std::vector<float> rest = gradient, sum(gradient.size(), 0.0f);
    std::vector<uint32_t> sent(words, 12345u);
    std::vector<double> sums(size_t(blocks * width), -7.0);
    run(SendSigns{rest.data(), elements, block, blocks, width, sent.data(),
                  sums.data()});
    run(SendScales{elements, block, blocks, width, sums.data(), sent.data()});
    run(AddSigns{sent.data(), block, width, 0, 1, 0, elements, true,
                 rest.data()});
    run(AddSigns{sent.data(), block, width, 0, 1, 0, elements, false,
                 sum.data()});

    std::vector<Member> members(1);
    members[0].elements = elements, members[0].shape = {elements};
    std::vector<float> residual(gradient.size(), 0.0f), wanted(gradient.size());
    std::vector<uint32_t> exchanged(words);
    reduceCompressed(*makeLocalJobs(1, 0)[0]->channel[reduceChannel],
                     {{"one-bit", block},
                      gradient.data(),
                      WireType::f32,
                      elements,
                      members,
                      residual.data(),
                      nullptr,
                      reinterpret_cast<char *>(exchanged.data()),
                      wanted.data(),
                      0,
                      elements,
                      false});
    EXPECT_EQ(sent, exchanged) << elements << " in blocks of " << block;
    EXPECT_EQ(image(rest), image(residual)) << elements;
    EXPECT_EQ(image(sum), image(wanted)) << elements;
  }
};

// Blocks that end within a word, and members that end within a block.
TEST_P(OwnSignKernels, wordsAreTheHosts) {
  for (int64_t elements : {1, 31, 37, 4096, 4097, 13000})
    for (int64_t block : {32, 33, 100, 256, 65536})
      expectAsOnTheHost(randomFloats(size_t(elements), 40), block);
}

// Adds what several ranks have sent to a part of the sum, in their order.
TEST_P(OwnSignKernels, addsRanksToAPartOfTheSum) {
  float half = 0.5f, four = 4;
  uint32_t scales[2];
  memcpy(&scales[0], &half, sizeof half);
  memcpy(&scales[1], &four, sizeof four);
  const uint32_t words[] = {scales[0], 0b0110, scales[1], 0b0011};
  std::vector<float> sum = {1, 1, 1};
  run(AddSigns{words, 32, 1, 2, 2, 1, 3, false, sum.data()});
  EXPECT_EQ(sum, (std::vector<float>{-3.5f, 4.5f, 5.5f}));
}

INSTANTIATE_TEST_SUITE_P(Grids, OwnSignKernels, someLaunches());

} // namespace
