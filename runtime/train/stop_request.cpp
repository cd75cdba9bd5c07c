// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The signal handler only stores the number: nothing else is safe there.
#include "runtime/train/stop_request.h"

#include "runtime/support/signals.h"

#include <csignal>
#include <initializer_list>

namespace fsdpc::runtime {
namespace {

// The only type that a handler may write and other code read.
volatile std::sig_atomic_t remembered = 0;

// A second Ctrl-C gets the default action, so that it ends a run that hangs.
void remember(int signal) {
  if (remembered && signal == SIGINT) {
    std::signal(signal, SIG_DFL);
    std::raise(signal); // delivered when the handler returns
  }
  if (!remembered)
    remembered = signal;
}

} // namespace

void catchStopSignals() {
  for (int signal : {SIGTERM, SIGINT, SIGUSR1}) {
    if (isIgnored(signal))
      continue;
    struct sigaction now = {};
    now.sa_handler = remember;
    now.sa_flags = SA_RESTART; // calls of libraries need not expect a signal
    sigemptyset(&now.sa_mask);
    sigaction(signal, &now, nullptr);
  }
}

int stopSignal() { return remembered; }

const char *nameOfRequest(int request) {
  switch (request) {
  case timeLimitReached:
    return "--time-limit";
  case SIGINT:
    return "SIGINT";
  case SIGUSR1:
    return "SIGUSR1";
  default:
    return "SIGTERM";
  }
}

} // namespace fsdpc::runtime
