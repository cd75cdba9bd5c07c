// The time of one rank's compute stream. The timeline of a schedule and the
// simulation of many ranks advance it by the same rules.
#ifndef FSDPC_COMPILER_SCHEDULE_CLOCK_H
#define FSDPC_COMPILER_SCHEDULE_CLOCK_H

#include <algorithm>

namespace fsdpc::schedule {

struct Clock {
  double nowUs = 0;
  /// When the last collective that has been started ends. A channel is busy
  /// without a gap until then, so ops are slower until then.
  double busyUntilUs = 0;
  /// The time by which ops took longer because of that.
  double slowedUs = 0;

  /// Runs an op of `us`, which takes longer by the share `slowdown` while a
  /// channel is busy. Returns the time after it.
  double run(double us, double slowdown) {
    double beside =
        std::min(us, std::max(0.0, busyUntilUs - nowUs) / (1 + slowdown));
    slowedUs += beside * slowdown;
    return nowUs += us + beside * slowdown;
  }

  /// Stalls until `us`, and returns for how long. What is already done costs
  /// nothing.
  double waitFor(double us) {
    double stall = std::max(0.0, us - nowUs);
    nowUs += stall;
    return stall;
  }
};

} // namespace fsdpc::schedule

#endif // FSDPC_COMPILER_SCHEDULE_CLOCK_H
