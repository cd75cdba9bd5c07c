// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The time of one rank's compute stream. The timeline of a schedule and the
// simulation of many ranks advance it by the same rules.
#pragma once

#include <algorithm>

namespace fsdpc::schedule {

/// The shares of their time by which ops and collectives take longer while the
/// other run beside them.
struct Contention {
  double ofCompute = 0, ofCommunication = 0;
};

/// Collectives have a time of their own, which passes more slowly while ops run
/// beside them. By it each takes as long as it would alone.
struct Clock {
  double nowUs = 0;
  /// The same moment in the time of collectives. Equal to nowUs, to the bit, if
  /// ops do not slow collectives down.
  double linkUs = 0;
  /// When the last collective that has been started ends, in the time of
  /// collectives. A channel is busy without a gap until then.
  double busyUntilUs = 0;
  /// The time by which ops took longer because of that.
  double slowedUs = 0;

  /// Runs an op of `us`, which takes longer while a channel is busy, as
  /// collectives do beside it. Returns the time after it.
  double run(double us, Contention contention) {
    if (busyUntilUs <= linkUs) { // the same to the bit, without divisions
      linkUs += us;
      return nowUs += us;
    }
    double slower = 1 + contention.ofCompute;
    double busy =
        std::max(0.0, busyUntilUs - linkUs) * (1 + contention.ofCommunication);
    double beside = std::min(us, busy / slower);
    slowedUs += beside * contention.ofCompute;
    double took = us + beside * contention.ofCompute;
    linkUs += took - beside * slower * contention.ofCommunication /
                         (1 + contention.ofCommunication);
    return nowUs += took;
  }

  /// Stalls until `us` in the time of collectives, and returns for how long.
  /// Waiting for a finished transfer costs nothing.
  double waitFor(double us) {
    double stall = std::max(0.0, us - linkUs);
    linkUs += stall;
    nowUs += stall;
    return stall;
  }
};

} // namespace fsdpc::schedule
