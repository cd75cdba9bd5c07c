// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes the manifest's reader: what it accepts survives writing and reading,
// and its memory plan does not overflow.
#include "runtime/abi/manifest.h"
#include "runtime/abi/memory_plan.h"
#include "tests/fuzz/input.h"

using namespace fsdpc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto read = fromJson(reinterpret_cast<const char *>(data), size);
  if (!read) {
    fuzz::demand(!read.error().message.empty(), "an error has a message");
    return 0;
  }
  std::string text = toJson(*read);
  auto again = fromJson(text.data(), text.size());
  fuzz::demand(bool(again), "what is written can be read");
  // Compared as texts, since manifests have no equality.
  fuzz::demand(toJson(*again) == text, "nothing changes");
  // One rank, a number that divides little, and the most that the program
  // allows.
  for (int64_t ranks : {int64_t(1), int64_t(7), read->maxRanks})
    fuzz::demand(planMemory(*read, ranks, 1, 4096, 0, 0).total() >= 0,
                 "memory is not negative");
  return 0;
}
