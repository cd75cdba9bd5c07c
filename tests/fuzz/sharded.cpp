// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes the index of sharded safetensors (--init DIR) and the index of the
// best weights (--best DIR): each is refused with one line, or names files of
// its folder alone.
#include "runtime/checkpoint/best_folder.h"
#include "runtime/data/init_file.h"
#include "tests/fuzz/input.h"

#include <filesystem>
#include <fstream>

using namespace fsdpc;
using namespace fsdpc::runtime;

// Returns a folder that ends with the process, with one file of weights. The
// readers open files below a folder, without links, so files in memory do not
// do.
static const std::string &folder() {
  static struct Folder {
    Folder() : path("/tmp/fuzz-sharded-XXXXXX") {
      if (!mkdtemp(path.data()))
        std::abort();
      SafeTensorsHeader header;
      header.add("w", "f32", {1}, {});
      std::ofstream(path + "/a.safetensors", std::ios::binary)
          << header.text() << std::string(4, '\0');
    }
    ~Folder() { std::filesystem::remove_all(path); }
    std::string path;
  } made;
  return made.path;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  for (const char *name : {"model.safetensors.index.json", "best.json"})
    std::ofstream(folder() + "/" + name, std::ios::binary)
        .write(reinterpret_cast<const char *>(data), std::streamsize(size));
  if (auto init = InitFile::open(folder()))
    fuzz::demand(init->tensors().size() == 1, "the file has one tensor");
  else
    fuzz::demandOneLine(init.error().message);
  BestFolder best;
  if (Status opened = best.open(folder(), /*resumes=*/true); !opened)
    fuzz::demandOneLine(opened.error().message);
  return 0;
}
