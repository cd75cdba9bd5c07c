// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc ckpt convert`: to and from PyTorch, and from onnxruntime-training.
// Formats of torch are read and written by torch itself, in torch_convert.py,
// which a Python with torch runs. Between it and this program lies one
// safetensors file, in which a name says what a tensor is: "value/NAME",
// "buffer/NAME", "exp_avg/NAME"; the updates of a parameter's state are the
// number "step/NAME", and the run's own numbers are "step", "sample",
// "skipped", "scale" and "in_a_row".
#include "runtime/data/safetensors.h"
#include "runtime/support/file.h"
#include "runtime/support/installation.h"
#include "runtime/support/new_file.h"
#include "runtime/support/programs.h"
#include "tools/ckpt/checkpoints.h"
#include "tools/ckpt/commands.h"
#include "tools/ckpt/imported.h"
#include "tools/ckpt/new_folder.h"
#include "tools/ckpt/ort_source.h"

#include <cstdio>
#include <map>
#include <utility>

namespace fsdpc::ckpt {

using namespace runtime;

namespace {

// Runs torch_convert.py, which prints its own errors.
Status runTorch(const Arguments &arguments, std::vector<std::string> words) {
  FSDPC_TRY(checkParts("lib/ckpt"));
  words.insert(words.begin(), {arguments.python, arguments.script});
  Result<int> code = runAndWait(std::move(words));
  if (!code)
    return code.error().reworded(code.error().message +
                                 "; name a Python that has torch with "
                                 "--python");
  if (*code == 0)
    return {};
  return inputError("'" + arguments.python + "' could not convert '" +
                    arguments.input + "'; its error is above");
}

// ---- to torch ----

// "value/h.0.fc.weight", "buffer/bn.running_mean", "exp_avg/h.0.fc.weight".
std::string exchangeName(const Tensor &tensor) {
  return (tensor.isBuffer       ? "buffer"
          : tensor.part.empty() ? "value"
                                : tensor.part) +
         "/" + tensor.name;
}

// Updates that each parameter's optimizer state has seen, by its name.
std::map<std::string, int64_t> updatesOf(const CheckpointManifest &stored) {
  std::map<std::string, int64_t> updates;
  // Steps that overflowed under a dynamic loss scale updated nothing, so they
  // do not count as updates, as in torch's own `step`.
  int64_t done = stored.state.step - stored.state.scaler.skips;
  for (const StoredLayout &layout : stored.layouts)
    for (size_t i = 0; i < layout.members.size(); ++i)
      updates[layout.members[i].name] = done - layout.sinceOf(i);
  return updates;
}

// Writes the tensors, and a number "step/NAME" for each parameter with states.
Status writeExchange(const TensorSource &source,
                     const CheckpointManifest &stored,
                     const std::string &path) {
  SafeTensorsHeader header;
  std::vector<uint64_t> offsets;
  std::map<std::string, int64_t> updates = updatesOf(stored);
  std::vector<std::pair<uint64_t, int64_t>> numbers; // offset, number
  for (const Tensor &tensor : source.tensors()) {
    std::vector<std::string> aliases;
    for (const std::string &alias : tensor.aliases)
      if (tensor.part.empty())
        aliases.push_back("value/" + alias);
    offsets.push_back(
        header.add(exchangeName(tensor), tensor.dtype, tensor.shape, aliases));
    auto step = updates.find(tensor.name);
    if (tensor.part.empty() || step == updates.end())
      continue;
    numbers.emplace_back(header.add("step/" + tensor.name, "i64", {}, {}),
                         step->second);
    updates.erase(step); // a parameter has several states, and one step
  }
  // Offsets in the header are relative to its end, so every write adds the
  // header's size.
  std::string text = header.text();
  NewFile file;
  FSDPC_TRY(file.open(path));
  FSDPC_TRY(file.write(0, text.data(), text.size()));
  for (size_t i = 0; i < offsets.size(); ++i)
    FSDPC_TRY(forEachPiece(
        source, i, [&](const char *piece, uint64_t at, uint64_t bytes) {
          return file.write(text.size() + offsets[i] + at, piece, bytes);
        }));
  for (auto &[offset, number] : numbers)
    FSDPC_TRY(file.write(text.size() + offset, &number, sizeof number));
  return file.commit();
}

// The keys of --loss-scale=dynamic,KEY=X in the compile's command line.
std::string scaleRules(const CheckpointManifest &stored) {
  std::string command = settingOf(stored, "the command line of the compile");
  const std::string flag = "--loss-scale=dynamic,";
  size_t begin = command.find(flag);
  if (begin == std::string::npos)
    return "";
  begin += flag.size();
  return command.substr(begin, command.find_first_of(" '\"", begin) - begin);
}

// Writes the exchange file, lets torch make the result of it, and renames the
// result. Nothing but the result remains, whatever fails.
int toTorch(const Arguments &arguments) {
  auto folder = findCheckpoint(arguments.input, arguments.step);
  if (!folder)
    return report(folder.error());
  auto source = openCheckpointTensors(*folder, Content::valuesAndStates, {});
  auto stored = readCheckpointManifest(*folder);
  if (!source || !stored)
    return report(source ? stored.error() : source.error());
  // Both the exchange file and the result lie in a temporary folder beside the
  // output, which must be on the same disk for the rename.
  NewFolder work;
  if (Status made = work.open(arguments.output); !made)
    return report(made.error());
  std::string exchange = work.temporary() + "/exchange.safetensors",
              result = work.temporary() + "/result";
  if (Status written = writeExchange(**source, *stored, exchange); !written)
    return report(written.error());
  const TrainingState &state = stored->state;
  std::vector<std::string> words = {"to-" + arguments.to,
                                    exchange,
                                    result,
                                    "--step",
                                    std::to_string(state.step),
                                    "--sample",
                                    std::to_string(state.sample),
                                    "--skipped",
                                    std::to_string(state.scaler.skips)};
  // A run without loss scaling has the default state, and no scaler is written.
  const LossScaler::State off;
  if (state.scaler.scale != off.scale || state.scaler.inARow != 0) {
    char scale[32];
    std::snprintf(scale, sizeof scale, "%.9g", double(state.scaler.scale));
    words.insert(words.end(), {"--scale", scale, "--in-a-row",
                               std::to_string(state.scaler.inARow),
                               "--scale-rules", scaleRules(*stored)});
  }
  Status ran = runTorch(arguments, std::move(words));
  if (!ran)
    return report(ran.error());
  if (rename(result.c_str(), arguments.output.c_str()) != 0)
    return report(fileError(arguments.output, "make"));
  return int(ExitCode::success);
}

// ---- from others ----

// Lets torch write the exchange file, and opens it.
Result<std::unique_ptr<TensorSource>> openOfTorch(const Arguments &arguments) {
  // Beside the output, where there is room for the checkpoint too. The file has
  // a name that nobody else has, and goes with `scratch`: it stays readable as
  // long as it is open.
  NewFile scratch;
  FSDPC_TRY(scratch.open(folderOf(arguments.output) + "fsdpc-convert"));
  FSDPC_TRY(runTorch(arguments, {"from-" + arguments.from, arguments.input,
                                 scratch.temporaryPath()}));
  return openTensors(scratch.temporaryPath(), Content::values);
}

// Makes a checkpoint of the tensors of another program.
int fromOther(const Arguments &arguments) {
  bool isPlain = arguments.from == "safetensors";
  auto opened = isPlain ? openTensors(arguments.input, Content::values)
                : arguments.from == "onnxruntime"
                    ? openOrtCheckpoint(arguments.input)
                    : openOfTorch(arguments);
  if (!opened)
    return report(opened.error());
  Status written = writeImported(**opened, !isPlain, arguments);
  if (!written)
    return report(written.error().reworded("cannot convert '" +
                                           arguments.input +
                                           "': " + written.error().message));
  return int(ExitCode::success);
}

// ---- from torch to safetensors ----

// Writes the values alone, for --init of a program.
int toSafetensors(const Arguments &arguments) {
  NewFile file;
  if (Status made = file.open(arguments.output); !made)
    return report(made.error());
  Status ran = runTorch(arguments, {"from-" + arguments.from, arguments.input,
                                    file.temporaryPath(), "--plain"});
  if (!ran)
    return report(ran.error());
  if (Status committed = file.commit(); !committed)
    return report(committed.error());
  return int(ExitCode::success);
}

} // namespace

int convert(const Arguments &arguments) {
  if (arguments.to == "safetensors")
    return toSafetensors(arguments);
  return arguments.to.empty() ? fromOther(arguments) : toTorch(arguments);
}

} // namespace fsdpc::ckpt
