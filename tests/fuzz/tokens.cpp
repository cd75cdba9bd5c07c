// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes --tokens: two inputs as windows of one stream. The first line of the
// input is the text of the flag's value after the file's name.
#include "runtime/data/samples.h"
#include "tests/fuzz/input.h"

#include <algorithm>

using namespace fsdpc;
using namespace fsdpc::runtime;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static fuzz::MemoryFile file;
  const uint8_t *end = std::find(data, data + size, '\n');
  std::string suffix(data, end);
  if (end != data + size)
    ++end;
  std::string path = file.write(end, size_t(data + size - end));
  Manifest manifest;
  manifest.inputs = {{"ids", {2, 3}, "i64", 300, 0}, {"labels", {2, 3}, "i32"}};
  Options options;
  options.data.resize(2);
  // The labels are the same stream, shifted by one token.
  parseTokens(path + suffix, options.data[0]);
  parseTokens(path + suffix + "+1", options.data[1]);
  for (DataSource &source : options.data)
    source.tokens = true;
  Samples samples;
  if (Status opened = samples.open(manifest, options, 1); !opened) {
    fuzz::demandOneLine(opened.error().message);
    return 0;
  }
  // Large enough for either type; the labels are i32.
  int64_t ids[6], labels[6];
  void *buffers[] = {ids, labels};
  for (int64_t i = 0; i < std::min<int64_t>(samples.count(), 50); ++i)
    if (Status read = samples.read(i, buffers); !read)
      fuzz::demandOneLine(read.error().message);
  return 0;
}
