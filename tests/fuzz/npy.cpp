// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes --data: a .npy file is refused, or each of its samples can be read.
#include "runtime/data/samples.h"
#include "tests/fuzz/input.h"

#include <algorithm>

using namespace fsdpc;
using namespace fsdpc::runtime;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static fuzz::MemoryFile file;
  Manifest manifest;
  // One float input, and one of integers with a range that values may leave.
  // The bound is 100, and -5 is the ignored index.
  manifest.inputs = {{"x", {2, 3}, "f32"}, {"i", {2, 3}, "i64", 100, -5}};
  std::string path = file.write(data, size);
  for (const Input &input : manifest.inputs) {
    Manifest one;
    one.inputs = {input};
    Options options;
    options.data.resize(1);
    options.data[0].file = path;
    Samples samples;
    if (Status opened = samples.open(one, options, 1); !opened) {
      fuzz::demandOneLine(opened.error().message);
      continue;
    }
    fuzz::demand(uint64_t(samples.count()) <= size, "samples have bytes");
    if (!samples.hashOf(0))
      std::abort();
    // One sample of the larger type: 2 × 3 elements.
    int64_t values[6];
    void *buffers[] = {values};
    for (int64_t i = 0; i < std::min<int64_t>(samples.count(), 50); ++i)
      if (Status read = samples.read(i, buffers); !read)
        fuzz::demandOneLine(read.error().message);
  }
  return 0;
}
