// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc ckpt verify`: reads every byte of every checkpoint at a path and
// compares all checksums. All files that are damaged are named, so that one
// call tells what to copy again.
#include "runtime/support/json_text.h"
#include "runtime/support/spelling.h"
#include "tools/ckpt/checkpoints.h"
#include "tools/ckpt/commands.h"

namespace fsdpc::ckpt {

using namespace runtime;

namespace {

// Returns one message per damaged file, or a single one if the manifest itself
// cannot be read. Empty if the checkpoint is sound.
std::vector<std::string> faultsOf(const std::string &folder) {
  Result<TrainingCheckpoint> opened = TrainingCheckpoint::open(folder);
  if (!opened)
    return {opened.error().message};
  std::vector<std::string> faults;
  // Each file by itself, as if it were the share of one rank of many.
  int files = int(opened->manifest().ranks);
  for (int file = 0; file < files; ++file)
    if (Status whole = opened->verify(file, files); !whole)
      faults.push_back(whole.error().message);
  return faults;
}

} // namespace

int verify(const Arguments &arguments) {
  auto folders = findCheckpoints(arguments.input);
  if (!folders)
    return report(folders.error());
  if (arguments.step) {
    auto one = findCheckpoint(arguments.input, arguments.step);
    if (!one)
      return report(one.error());
    folders = std::vector<std::string>{*one};
  }
  bool whole = true;
  std::string text;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const std::string &folder : *folders) {
    std::vector<std::string> faults = faultsOf(folder);
    whole = whole && faults.empty();
    list.push_back(
        {{"folder", folder}, {"whole", faults.empty()}, {"faults", faults}});
    if (faults.empty())
      text += "'" + folder + "' is whole\n";
    for (const std::string &fault : faults)
      text += fault + "\n";
  }
  ExitCode code = whole ? ExitCode::success : ExitCode::wrongInput;
  return arguments.json ? printJson(dumpAscii(list, 2) + "\n", code)
                        : print(text, code);
}

} // namespace fsdpc::ckpt
