// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes --data FILE.npz: an array of the archive is refused with one line, or
// reads as a file whose .npy header may be right or wrong, up to its last byte.
#include "runtime/data/npz.h"
#include "runtime/data/sample_file.h"
#include "tests/fuzz/input.h"

#include <algorithm>
#include <vector>

using namespace fsdpc;
using namespace fsdpc::runtime;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static fuzz::MemoryFile file;
  std::string path = file.write(data, size);
  // An array of the archive, and one that a right archive lacks.
  for (const char *name : {"x", "none"}) {
    Result<File> array = openNpz(path, name);
    if (!array) {
      fuzz::demandOneLine(array.error().message);
      continue;
    }
    // Deflate makes a byte to at most 1032.
    fuzz::demand(array->size() <= 1032 * uint64_t(size), "bytes have a source");
    std::vector<char> bytes(std::min<uint64_t>(array->size(), 4096));
    if (!array->read(array->size() - bytes.size(), bytes.data(), bytes.size()))
      std::abort();
    if (Result<NpyHeader> header = readNpyHeader(*array); !header)
      fuzz::demandOneLine(header.error().message);
  }
  return 0;
}
