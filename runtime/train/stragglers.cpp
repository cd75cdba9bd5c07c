// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/train/stragglers.h"

#include <algorithm>

namespace fsdpc::runtime {

namespace {

// Returns the lower of two middle elements, and reorders the values.
template <typename Values> double lowerMedian(Values &values) {
  auto at = values.begin() + std::ptrdiff_t((values.size() - 1) / 2);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

} // namespace

// Medians, so that a few steps that wait for a disk, or that the system
// interrupts, do not count.
void Stragglers::Measure::add(const std::vector<double> &times, size_t step) {
  last.resize(times.size());
  typical.resize(times.size());
  for (size_t rank = 0; rank < times.size(); ++rank) {
    last[rank][step % window] = times[rank];
    auto copy = last[rank];
    typical[rank] = lowerMedian(copy);
  }
  sorted = typical;
  median = lowerMedian(sorted);
}

bool Stragglers::Measure::exceeds(size_t rank, double factor) const {
  return typical[rank] >= factor * median &&
         typical[rank] - median >= leastExcess;
}

// Every rank computes this from the same numbers, so all agree which one is
// slow. A window that is not full yet has zeros, which name nobody.
void Stragglers::add(const ComputeTimes &times) {
  elapsed.add(times.elapsed, steps);
  processor.add(times.processor, steps);
  ++steps;
  slow.resize(times.elapsed.size());
  turned.resize(times.elapsed.size());
  for (size_t rank = 0; rank < slow.size(); ++rank) {
    bool was = slow[rank];
    double factor = was ? recovered : ratio;
    slow[rank] = steps >= window && (elapsed.exceeds(rank, factor) ||
                                     processor.exceeds(rank, factor));
    turned[rank] = slow[rank] && !was;
  }
}

Stragglers::Verdict Stragglers::verdictOn(int rank) const {
  auto of = [&](const Measure &measure) {
    return Verdict{measure.typical[size_t(rank)], measure.median,
                   &measure == &processor};
  };
  Verdict byElapsed = of(elapsed), byProcessor = of(processor);
  return byProcessor.own * byElapsed.median > byElapsed.own * byProcessor.median
             ? byProcessor
             : byElapsed;
}

} // namespace fsdpc::runtime
