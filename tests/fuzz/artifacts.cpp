// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes the checkpoint of onnxruntime-training beside a model: a file is
// refused, or what is taken of it is no longer than the file.
#include "frontends/onnx/ort/ort_checkpoint.h"
#include "tests/fuzz/input.h"

#include <fstream>

using namespace fsdpc;

// Returns a folder that ends with the process. The reader opens a file below a
// folder, without links, so a file in memory does not do.
static const std::string &folder() {
  static struct Folder {
    Folder() : path("/tmp/fuzz-artifacts-XXXXXX") {
      if (!mkdtemp(path.data()))
        std::abort();
    }
    ~Folder() {
      std::remove((path + "/checkpoint").c_str());
      rmdir(path.c_str());
    }
    std::string path;
  } made;
  return made.path;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::ofstream(folder() + "/checkpoint", std::ios::binary)
      .write(reinterpret_cast<const char *>(data), size);
  auto read = readOrtCheckpoint(folder(), "checkpoint");
  if (!read) {
    fuzz::demandOneLine(read.error().message);
    return 0;
  }
  size_t names = 0;
  auto check = [&](const std::vector<OrtTensor> &tensors) {
    for (const OrtTensor &tensor : tensors) {
      names += tensor.name.size();
      fuzz::demand(tensor.shape.size() <= 64, "a rank is bounded");
    }
  };
  check(read->trained);
  check(read->frozen);
  for (const OrtState &state : read->states) {
    names += state.parameter.size();
    check(state.moments);
  }
  fuzz::demand(names <= size, "names share no bytes");
  return 0;
}
