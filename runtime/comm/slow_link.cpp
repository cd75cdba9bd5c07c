// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A link takes one message after the other, because a communicator runs one
// collective at a time. So a wait per message is enough.
#include "runtime/comm/slow_link.h"

#include "runtime/comm/failure.h"

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <string>
#include <thread>

namespace fsdpc::runtime {

std::optional<SlowLink> SlowLink::fromEnvironment() {
  constexpr const char *name = "FSDPC_CROSS_NODE_GBS";
  const char *text = getenv(name);
  if (!text || !*text)
    return std::nullopt;
  char *end = nullptr;
  double rate = std::strtod(text, &end);
  if (*end || !std::isfinite(rate) || rate <= 0)
    fail(inputError(std::string(name) + " is '" + text +
                    "', not a number of 10^9 bytes per second above 0"));
  return SlowLink(rate * 1e9);
}

void SlowLink::send(size_t bytes) {
  if (bytes > 0)
    std::this_thread::sleep_for(
        std::chrono::duration<double>(double(bytes) / bytesPerSecond));
}

} // namespace fsdpc::runtime
