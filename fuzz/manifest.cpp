// Fuzzes the manifest's reader: what it accepts survives writing and reading.
#include "shared/manifest.h"
#include "fuzz/input.h"

using namespace fsdpc;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  auto read = fromJson(reinterpret_cast<const char *>(data), size);
  if (!read) {
    fuzz::demandOneLine(read.error().message);
    return 0;
  }
  std::string text = toJson(*read);
  auto again = fromJson(text.data(), text.size());
  fuzz::demand(bool(again), "what is written can be read");
  fuzz::demand(toJson(*again) == text, "nothing changes");
  return 0;
}
