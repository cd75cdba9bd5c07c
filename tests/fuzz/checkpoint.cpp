// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes the manifest of a checkpoint. Its own checksum keeps random bytes out,
// so it is made right before the parse, as a forger would. A manifest is
// refused with one line, or survives writing and reading, and its tensors can
// be listed.
#include "runtime/checkpoint/checkpoint_manifest.h"
#include "runtime/support/json_text.h"
#include "tests/fuzz/input.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

using namespace fsdpc;
using namespace fsdpc::runtime;

// Returns the manifest with the checksum of its content, or the text itself.
static std::string forged(const std::string &text) {
  nlohmann::ordered_json json = parseJsonOrNull(text, /*deepest=*/16);
  if (!json.is_object() || !json.contains("checkpoint"))
    return text;
  std::string body = dump(json["checkpoint"]);
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx",
                (unsigned long long)XXH64(body.data(), body.size(), 0));
  json["checksum"] = digits;
  return dump(json) + "\n";
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string text = forged(std::string(data, data + size));
  if (auto later = laterFormat(text))
    fuzz::demandOneLine(*later);
  auto stored = parseCheckpoint(text);
  if (!stored) {
    fuzz::demandOneLine(stored.error().message);
    return 0;
  }
  for (int rank = 0; rank < 2; ++rank)
    tensorsOf(*stored, rank);
  std::string written = toJson(*stored);
  auto again = parseCheckpoint(written);
  fuzz::demand(bool(again), "a manifest that was written can be read");
  fuzz::demand(toJson(*again) == written, "reading changes nothing");
  return 0;
}
