// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's own CUDA kernels that choose the largest elements, one after
// the other as a device launches them, against the host's takeLargest.
#include "runtime/numeric/top_k.h"
#include "tests/runtime/cuda/own_kernels.h"

using namespace fsdpc;
using namespace fsdpc::runtime;
using namespace fsdpc::testing;

namespace {

class OwnSelectionKernels : public OwnKernelTest {
protected:
  // Returns what takeLargest does.
  std::vector<ChosenElement> take(std::vector<float> &values, int64_t count) {
    auto elements = int64_t(values.size());
    int64_t strips = selectionStrips(elements);
    Threshold threshold = {12345, 678};
    std::vector<int64_t> digits(size_t(strips * selectionDigits), -1);
    std::vector<SegmentCount> segments(size_t(selectionSegments(elements)));
    std::vector<ChosenElement> chosen(static_cast<size_t>(count));
    for (int shift = 28; shift >= 0; shift -= digitBits) {
      run(CountDigits{values.data(), elements, shift, shift == 28, &threshold,
                      strips, digits.data()});
      run(PickDigit{digits.data(), strips, count, shift, shift == 28,
                    &threshold});
    }
    run(CountChosen{values.data(), elements, &threshold, segments.data()});
    run(CountBefore{segments.data(), int64_t(segments.size())});
    run(TakeChosen{values.data(), elements, count, &threshold, segments.data(),
                   chosen.data()});
    return chosen;
  }

  void expectAsOnTheHost(const std::vector<float> &values, int64_t count) {
    std::vector<float> found = values, expected = values;
    std::vector<ChosenElement> chosen = take(found, count);
    std::vector<ChosenElement> wanted(static_cast<size_t>(count));
    takeLargest(expected.data(), int64_t(values.size()), count, wanted.data());
    EXPECT_EQ(image(chosen), image(wanted)) << count << " of " << values.size();
    EXPECT_EQ(image(found), image(expected))
        << count << " of " << values.size();
  }
};

// Numbers of elements that end within a segment and a thread's part of it.
TEST_P(OwnSelectionKernels, choiceIsTheHosts) {
  for (int64_t elements : {1, 37, 4096, 4097, 13000}) {
    std::vector<float> values = randomFloats(size_t(elements), 30);
    for (int64_t count : {int64_t(1), elements / 9, elements - 1, elements})
      if (count > 0)
        expectAsOnTheHost(values, count);
  }
}

// Many equal magnitudes, of which only those in front are taken.
TEST_P(OwnSelectionKernels, tiesGoToLowerPlaces) {
  std::vector<float> values(9000);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = (i % 3 ? 1.0f : 2.0f) * (i % 2 ? -1.0f : 1.0f);
  for (int64_t count : {1, 2999, 3000, 3001, 5555, 9000})
    expectAsOnTheHost(values, count);
  expectAsOnTheHost(std::vector<float>(5000), 4500);
}

// NaN is larger than infinity, and denormals count.
TEST_P(OwnSelectionKernels, orderIsThatOfBits) {
  std::vector<float> values = randomFloats(5000, 31);
  values[4999] = NAN, values[7] = -INFINITY, values[4100] = 1e-42f;
  values[4101] = -1e-43f;
  for (int64_t count : {1, 2, 3, 4998, 4999})
    expectAsOnTheHost(values, count);
}

// Places outside of the part of the sum are left out.
TEST_P(OwnSelectionKernels, addsToAPartOfTheSum) {
  const std::vector<ChosenElement> chosen = {{3, 1}, {5, 2}, {6, 4}, {9, 8}};
  std::vector<float> sum = {1, 1, 1, 1};
  run(AddChosen{chosen.data(), 4, sum.data(), 5, 4});
  EXPECT_EQ(sum, (std::vector<float>{3, 5, 1, 1}));
}

INSTANTIATE_TEST_SUITE_P(Grids, OwnSelectionKernels, someLaunches());

} // namespace
