// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Problems for the tests of scheduling: one that is small enough to follow by
// hand, a model of sharded training, and random ones.
#pragma once

#include "compiler/schedule/solvers.h"

#include <ctime>
#include <random>

namespace fsdpc::schedule {

/// Measures processor time, which other processes hardly affect.
struct Stopwatch {
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) &&                 \
    !defined(__SANITIZE_THREAD__)
  static constexpr double slack = 1;
#else
  static constexpr double slack = 20; ///< sanitizers and debug builds
#endif
  std::clock_t start = std::clock();
  double seconds() const {
    return double(std::clock() - start) / CLOCKS_PER_SEC;
  }
};

inline Collective gather(std::string label, int earliest, int firstUse,
                         int lastUse, double us, int64_t bytes) {
  Collective c;
  c.kind = CollectiveKind::Gather;
  c.label = std::move(label);
  c.earliest = earliest;
  c.latest = firstUse;
  c.lastUse = lastUse;
  c.durationUs = us;
  c.buffers = {{bytes, 1}};
  return c;
}

inline Collective reduce(std::string label, int definition, int ready,
                         int latest, double us, int64_t bytes) {
  Collective c;
  c.kind = CollectiveKind::Reduce;
  c.label = std::move(label);
  c.earliest = ready;
  c.latest = latest;
  c.durationUs = us;
  c.buffers = {{bytes, 1, definition}};
  return c;
}

/// Two units of two ops, 10 µs each, with a gather of 15 µs and 100 bytes for
/// either, and a reduction of unit a's gradient, defined by op 1.
///
///   op        0    1    2    3
///   unit      a    a    b    b
///   gather a  use..use
///   gather b            use..use
///   reduce a       def  ready
inline Problem twoUnits() {
  Problem problem;
  problem.ops.assign(4, Op{10});
  problem.segments = {{0, 2, "a"}, {2, 4, "b"}};
  problem.collectives = {gather("gather a", 0, 0, 1, 15, 100),
                         gather("gather b", 0, 2, 3, 15, 100),
                         reduce("reduce a", 1, 2, 4, 15, 40)};
  return problem;
}

/// Forward and backward of `units` units with `opsPerPass` ops each. Every pass
/// gathers and every backward pass reduces. One activation per op is saved for
/// the backward pass.
inline Problem training(int units, int opsPerPass, double opUs,
                        double gatherUs) {
  Problem problem;
  int n = 2 * units * opsPerPass;
  problem.ops.assign(n, Op{opUs});
  auto addPass = [&](int unit, int begin, bool backward) {
    std::string name = "u" + std::to_string(unit);
    int end = begin + opsPerPass;
    problem.segments.push_back({begin, end, name});
    problem.collectives.push_back(gather("gathered " + name, 0, begin, end - 1,
                                         gatherUs, 1'000'000 + 1000 * unit));
    if (backward)
      problem.collectives.push_back(reduce("gradient " + name, begin, end, n,
                                           gatherUs * 1.5,
                                           2'000'000 + 1000 * unit));
    else
      for (int op = begin; op < end; ++op) {
        Tensor saved;
        saved.bytes = 50'000 + 128 * (op % 7);
        saved.begin = op;
        saved.end = n - 1 - op;
        saved.label = "activations " + name;
        problem.tensors.push_back(saved);
      }
  };
  for (int unit = 0; unit < units; ++unit)
    addPass(unit, unit * opsPerPass, false);
  for (int unit = units - 1; unit >= 0; --unit)
    addPass(unit, (2 * units - 1 - unit) * opsPerPass, true);
  return problem;
}

/// A problem that is well-formed but otherwise has no structure.
inline Problem randomProblem(unsigned seed) {
  std::mt19937 random(seed);
  auto between = [&](int low, int high) {
    return low + static_cast<int>(random() % (high - low + 1));
  };
  Problem problem;
  int n = between(1, 60);
  for (int p = 0; p < n; ++p)
    problem.ops.push_back({double(between(0, 40))});
  for (int begin = 0; begin < n;) {
    int end = std::min(n, begin + between(1, 8));
    if (between(0, 3))
      problem.segments.push_back({begin, end, "s"});
    begin = end;
  }
  for (int i = between(0, 20); i > 0; --i) {
    Tensor tensor;
    tensor.bytes = between(0, 500);
    tensor.alignment = 1 << between(0, 6);
    tensor.begin = between(0, n - 1);
    tensor.end = between(tensor.begin, n - 1);
    tensor.label = "t" + std::to_string(i);
    problem.tensors.push_back(tensor);
  }
  for (int i = between(0, 15); i > 0; --i) {
    Collective c;
    std::string label = "c" + std::to_string(i);
    double us = between(0, 60);
    int64_t bytes = between(0, 300);
    if (between(0, 2)) {
      int firstUse = between(0, n - 1);
      c = gather(label, between(0, firstUse), firstUse,
                 between(firstUse, n - 1), us, bytes);
      if (between(0, 9) == 0) {
        c.lastUse = std::nullopt;
        c.latest = n;
      }
    } else {
      int ready = between(1, n);
      c = reduce(label, between(0, ready - 1), ready, between(ready, n), us,
                 bytes);
    }
    c.channel = between(0, 3) ? 0 : 1;
    c.buffers[0].alignment = 1 << between(0, 6);
    problem.collectives.push_back(c);
  }
  problem.baseBytes = between(0, 100);
  return problem;
}

} // namespace fsdpc::schedule
