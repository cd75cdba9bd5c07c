// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Polling before sleeping. A sleep and a wake-up take some 20 µs, so it pays to
// poll that long, and no longer: the cores belong to the compute threads.
#pragma once

#include <chrono>

namespace fsdpc::runtime {

/// Polls `ready` for at most 20 µs and returns its last result. If it is false
/// the caller should sleep on what makes it true. The clock is read every 16th
/// time only, since that takes as long as several polls.
template <typename Ready> bool spinFor20Microseconds(Ready &&ready) {
  auto deadline =
      std::chrono::steady_clock::now() + std::chrono::microseconds(20);
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready())
        return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return ready();
}

} // namespace fsdpc::runtime
