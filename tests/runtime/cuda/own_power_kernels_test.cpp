// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's own CUDA kernels of power-sgd against the host's arithmetic, to
// the bit.
#include "runtime/comm/compressed_reduction.h"
#include "runtime/comm/power_sgd.h"
#include "tests/runtime/cuda/own_kernels.h"

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

class OwnPowerKernels : public OwnKernelTest {
protected:
  double lanes[powerLanes];
};

// Vectors shorter and longer than the lanes; one that depends on others, and
// one that is not finite.
TEST_P(OwnPowerKernels, orthonormalVectorsAreTheHosts) {
  constexpr int64_t count = 4;
  for (int64_t length : {5, 100, 256, 1030})
    for (bool finite : {true, false}) {
      std::vector<float> found = randomFloats(size_t(count * length), 40);
      for (int64_t k = 0; k < length; ++k)
        found[size_t(2 * length + k)] = 3 * found[size_t(length + k)];
      if (!finite)
        found[size_t(3 * length)] = INFINITY;
      std::vector<float> expected = found;
      orthonormaliseFactor(expected.data(), count, length);
      run(Orthonormalise{found.data(), nullptr, count, length, lanes});
      for (size_t i = 0; i < found.size(); ++i) {
        bool same = found[i] == expected[i] ||
                    (std::isnan(found[i]) && std::isnan(expected[i]));
        EXPECT_TRUE(same) << i << " of " << length;
      }
    }
}

// A vector of zeroes begins anew.
TEST_P(OwnPowerKernels, zeroVectorsAreReplaced) {
  constexpr int64_t length = 300;
  std::vector<float> first = randomFloats(2 * length, 41);
  std::vector<float> found = randomFloats(2 * length, 42);
  std::fill(found.begin(), found.begin() + length, 0.0f);
  std::vector<float> expected = found;
  std::copy(first.begin(), first.begin() + length, expected.begin());
  orthonormaliseFactor(expected.data(), 2, length);
  run(Orthonormalise{found.data(), first.data(), 2, length, lanes});
  EXPECT_EQ(found, expected);
}

// A whole reduction of one rank, kernel by kernel: two matrices, of which one
// has columns that fill no lanes.
TEST_P(OwnPowerKernels, reductionIsTheHosts) {
  constexpr int64_t rank = 2, elements = 2048;
  std::vector<Member> members(2);
  members[0].name = "a", members[0].shape = {20, 37};
  members[1].name = "b", members[1].shape = {16, 4, 16};
  members[1].offset = 752;
  PowerSizes sizes;
  for (Member &member : members) {
    PowerShape shape = powerShapeOf(member.shape);
    ASSERT_TRUE(shape.isCompressed(rank));
    member.elements = shape.rows * shape.columns;
    sizes.add(shape, rank);
  }
  std::vector<float> gradient = randomFloats(elements, 43);
  std::vector<float> residual = randomFloats(elements, 44), sum(elements, 5);
  std::vector<float> right = randomFloats(size_t(sizes.right) + 16, 45);
  std::vector<float> left(size_t(sizes.left) + 16);
  std::vector<float> ownResidual = residual, ownSum = sum, ownRight = right,
                     ownLeft = left;
  auto jobs = makeLocalJobs(1, 0);
  // The sum from element 100 on.
  reduceCompressed(*jobs[0]->channel[reduceChannel],
                   {{"power-sgd", rank},
                    gradient.data(),
                    WireType::f32,
                    elements,
                    members,
                    residual.data(),
                    right.data(),
                    reinterpret_cast<char *>(left.data()),
                    sum.data(),
                    100,
                    elements - 100,
                    true});
  float *p = ownLeft.data(), *q = ownRight.data();
  for (const Member &member : members) {
    PowerShape shape = powerShapeOf(member.shape);
    float *matrix = ownResidual.data() + member.offset;
    run(AddValues{gradient.data() + member.offset, WireType::f32, matrix,
                  member.elements, true});
    run(Orthonormalise{q, q, rank, shape.columns, lanes});
    run(MultiplyRight{matrix, q, shape, rank, p});
    run(Orthonormalise{p, nullptr, rank, shape.rows, lanes});
    run(MultiplyLeft{matrix, p, shape, rank, q});
    run(SpreadFactors{p, q, shape, rank, matrix, 1, member.offset,
                      ownSum.data(), 100, elements - 100});
    p += shape.rows * rank, q += shape.columns * rank;
  }
  // Padding is not the kernels' concern.
  ownRight.resize(size_t(sizes.right)), right.resize(size_t(sizes.right));
  EXPECT_EQ(ownRight, right);
  EXPECT_EQ(ownResidual, residual);
  EXPECT_EQ(ownSum, sum);
}

INSTANTIATE_TEST_SUITE_P(Grids, OwnPowerKernels, someLaunches());

} // namespace
