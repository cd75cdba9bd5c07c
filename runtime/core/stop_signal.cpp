// The handler only stores the number: nothing else is safe in it.
#include "runtime/core/stop_signal.h"

#include <csignal>
#include <initializer_list>

namespace fsdpc::runtime {
namespace {

volatile std::sig_atomic_t remembered = 0;

// A second signal gets the default action, so that a run that hangs can still
// be ended by Ctrl-C.
void remember(int signal) {
  if (remembered) {
    std::signal(signal, SIG_DFL);
    std::raise(signal); // delivered when the handler returns
  }
  remembered = signal;
}

} // namespace

void catchStopSignals() {
  for (int signal : {SIGTERM, SIGINT}) {
    // nohup and background shells start a process with signals ignored; that
    // choice stays.
    struct sigaction before, now = {};
    if (sigaction(signal, nullptr, &before) != 0 ||
        before.sa_handler == SIG_IGN)
      continue;
    now.sa_handler = remember;
    now.sa_flags = SA_RESTART; // calls of libraries need not expect a signal
    sigemptyset(&now.sa_mask);
    sigaction(signal, &now, nullptr);
  }
  std::signal(SIGPIPE, SIG_IGN);
}

int stopSignal() { return remembered; }

const char *nameOfSignal(int signal) {
  return signal == SIGINT ? "SIGINT" : "SIGTERM";
}

} // namespace fsdpc::runtime
