// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Requests to end a run early: SIGTERM, SIGINT and SIGUSR1, which people and
// batch systems send before they kill a job, and --time-limit. The loop ends
// after its current step, as if it were the last, so that --save and
// --checkpoint have something to write.
#pragma once

namespace fsdpc::runtime {

/// The request that --time-limit makes. The others are numbers of signals.
constexpr int timeLimitReached = 1000;

/// From now on a signal is only remembered, and a SIGINT after it ends the
/// process at once. Repeated signals of other kinds are ignored, since
/// launchers forward what batch systems send to every process. A signal that
/// the process was started to ignore stays ignored.
void catchStopSignals();

/// Returns the remembered signal, or 0.
int stopSignal();

/// "SIGTERM", "SIGINT", "SIGUSR1" or "--time-limit".
const char *nameOfRequest(int request);

} // namespace fsdpc::runtime
