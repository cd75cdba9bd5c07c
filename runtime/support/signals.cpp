// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/support/signals.h"

#include <csignal>

namespace fsdpc {

bool isIgnored(int signal) {
  struct sigaction now;
  return sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

} // namespace fsdpc
