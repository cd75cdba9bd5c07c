// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bytes that a rank's collectives send in a step, for the log. NCCL does
// not say what it moves; these are the bytes that an algorithm has to send
// which sends none twice. A replayed graph makes no calls, so what a section
// sends is kept from the time when it was enqueued.
#pragma once

#include "runtime/core/device.h"

#include <map>

namespace fsdpc::runtime {

class SentCounts {
public:
  /// Sections count from here on, `total` being what all calls have sent so
  /// far. Steps that ran before may run again.
  void start(const SentBytes &total) {
    before = total;
    steps = {};
  }
  /// Counts a section that has just been enqueued or replayed. Those of one
  /// entry function send the same. An evaluation belongs to no step.
  void add(const Section &section, const SentBytes &total) {
    SentBytes own{};
    for (size_t level = 0; level < own.size(); ++level)
      own[level] = total[level] - before[level];
    before = total;
    if (section.evaluate)
      return;
    SentBytes &kind = kinds[section.entry()];
    if (own != SentBytes{})
      kind = own;
    Step &step = steps[size_t(section.step % 2)];
    if (step.number != section.step)
      step = {section.step, {}};
    for (size_t level = 0; level < own.size(); ++level)
      step.sent[level] += kind[level];
  }
  /// Returns the sum of one of the last two steps.
  const SentBytes &of(int64_t step) const {
    return steps[size_t(step % 2)].sent;
  }

private:
  struct Step {
    int64_t number = -1;
    SentBytes sent{};
  };
  SentBytes before{};
  std::map<Section::Entry, SentBytes> kinds;
  std::array<Step, 2> steps; ///< even and odd
};

} // namespace fsdpc::runtime
