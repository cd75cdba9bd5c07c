// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes --init: a file is refused, or each tensor's bytes lie within it.
#include "runtime/data/safetensors.h"
#include "tests/fuzz/input.h"

using namespace fsdpc;
using namespace fsdpc::runtime;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static fuzz::MemoryFile file;
  auto opened = SafeTensors::open(file.write(data, size));
  if (!opened) {
    fuzz::demandOneLine(opened.error().message);
    return 0;
  }
  // All tensors lie in the file, even if the header claims otherwise.
  for (auto &[name, tensor] : opened->tensors()) {
    fuzz::demand(opened->find(name, {}) == &tensor, "names are found");
    std::string bytes(tensor.bytes, '\0');
    if (!opened->file().read(tensor.offset, bytes.data(), tensor.bytes))
      std::abort();
  }
  // A name that the file may lack, with an alias: must not crash.
  opened->find("none", {"alias"});
  return 0;
}
