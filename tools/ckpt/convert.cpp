// `fsdpc ckpt convert`: to and from PyTorch. Formats of torch are read and
// written by torch itself, in torch_convert.py, which a Python with torch runs.
// Between it and this program lies one safetensors file, in which a name says
// what a tensor is: "value/NAME", "buffer/NAME", "exp_avg/NAME"; and the
// numbers "step" and "sample".
#include "runtime/core/file.h"
#include "runtime/core/new_file.h"
#include "runtime/core/safetensors.h"
#include "runtime/core/spelling.h"
#include "tools/ckpt/checkpoint_writer.h"
#include "tools/ckpt/checkpoints.h"
#include "tools/ckpt/commands.h"
#include "tools/ckpt/new_folder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace fsdpc::ckpt {

using namespace runtime;

namespace {

// Runs torch_convert.py, which prints its own errors.
Status runTorch(const Arguments &arguments, std::vector<std::string> words) {
  words.insert(words.begin(), {arguments.python, arguments.script});
  std::vector<char *> pointers;
  for (std::string &word : words)
    pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  int code = posix_spawnp(&child, pointers[0], nullptr, nullptr,
                          pointers.data(), environ);
  if (code != 0)
    return Error{"cannot run '" + arguments.python +
                 "': " + std::strerror(code) +
                 "; name a Python that has torch with --python"};
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      return fileError(arguments.python, "wait for");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return {};
  return Error{"'" + arguments.python + "' could not convert '" +
               arguments.input + "'; its error is above"};
}

// ---- to torch ----

std::string exchangeName(const Tensor &tensor) {
  return (tensor.isBuffer       ? "buffer"
          : tensor.part.empty() ? "value"
                                : tensor.part) +
         "/" + tensor.name;
}

Status writeExchange(const TensorSource &source, const std::string &path) {
  SafeTensorsHeader header;
  std::vector<uint64_t> offsets;
  for (const Tensor &tensor : source.tensors()) {
    std::vector<std::string> aliases;
    for (const std::string &alias : tensor.aliases)
      if (tensor.part.empty())
        aliases.push_back("value/" + alias);
    offsets.push_back(
        header.add(exchangeName(tensor), tensor.dtype, tensor.shape, aliases));
  }
  std::string text = header.text();
  NewFile file;
  FSDPC_TRY(file.open(path));
  FSDPC_TRY(file.write(0, text.data(), text.size()));
  for (size_t i = 0; i < offsets.size(); ++i)
    FSDPC_TRY(forEachPiece(
        source, i, [&](const char *piece, uint64_t at, uint64_t bytes) {
          return file.write(text.size() + offsets[i] + at, piece, bytes);
        }));
  return file.commit();
}

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
    return report(made.error(), failed);
  std::string exchange = work.temporary() + "/exchange.safetensors",
              result = work.temporary() + "/result";
  if (Status written = writeExchange(**source, exchange); !written)
    return report(written.error(), failed);
  const TrainingState &state = stored->state;
  Status ran =
      runTorch(arguments, {"to-" + arguments.to, exchange, result, "--step",
                           std::to_string(state.step), "--sample",
                           std::to_string(state.sample), "--updates",
                           std::to_string(state.step - state.scaler.skips)});
  if (!ran)
    return report(ran.error(), failed);
  if (rename(result.c_str(), arguments.output.c_str()) != 0)
    return report(fileError(arguments.output, "make"), failed);
  return done;
}

// ---- from torch ----

// The content of an exchange file, or of a plain file of weights.
struct Exchange {
  std::unique_ptr<TensorSource> source;
  // By part ("value", "buffer", a state) and name: the tensor's index.
  std::map<std::string, std::map<std::string, size_t>> parts;
  std::vector<std::string> states; // in the order of the optimizer's
  CheckpointManifest stored;

  Status readNumbers(const Arguments &arguments);
  Status addLayouts();
  Status addBuffers();
};

// The order in which optimizers hold their states; each has only some of them.
const char *const stateOrder[] = {
    "exp_avg",    "exp_avg_sq", "exp_inf",   "max_exp_avg_sq",
    "square_avg", "acc_delta",  "grad_avg",  "momentum_buffer",
    "sum",        "prev",       "step_size", "ax",
    "ema"}; // the average is the last state

// Splits names at the first slash. Of a plain file of weights, all are values,
// except for what torch keeps in buffers.
void sortNames(Exchange &exchange, bool isExchange) {
  auto &tensors = exchange.source->tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string &name = tensors[i].name;
    size_t slash = name.find('/');
    auto endsWith = [&](const std::string &end) {
      return name.size() >= end.size() &&
             name.compare(name.size() - end.size(), end.size(), end) == 0;
    };
    if (isExchange && slash != std::string::npos)
      exchange.parts[name.substr(0, slash)][name.substr(slash + 1)] = i;
    else if (isExchange)
      exchange.parts["number"][name] = i;
    else
      exchange.parts[tensors[i].dtype != "f32" || endsWith("running_mean") ||
                             endsWith("running_var")
                         ? "buffer"
                         : "value"][name] = i;
  }
  for (const char *state : stateOrder)
    if (exchange.parts.count(state))
      exchange.states.push_back(state);
}

// The flags come before the numbers of the file.
Status Exchange::readNumbers(const Arguments &arguments) {
  const struct {
    const char *name;
    const std::optional<int64_t> &given;
    int64_t &number;
  } numbers[] = {{"step", arguments.step, stored.state.step},
                 {"sample", arguments.samples, stored.state.sample}};
  for (auto &[name, given, number] : numbers) {
    auto found = parts["number"].find(name);
    if (given)
      number = *given;
    else if (found != parts["number"].end() &&
             source->tensors()[found->second].bytes == sizeof number)
      FSDPC_TRY(source->read(found->second, 0, &number, sizeof number));
    if (number < 0)
      return Error{std::string("its ") + name + " is " +
                   std::to_string(number)};
  }
  stored.state.scaler.scale = 1;
  return {};
}

// Parameters with states and those without become a layout each.
Status Exchange::addLayouts() {
  StoredLayout trained, frozen;
  trained.name = "trained";
  trained.states = int32_t(states.size());
  trained.average = !states.empty() && states.back() == "ema";
  frozen.name = "frozen";
  for (auto &[name, index] : parts["value"]) {
    const Tensor &tensor = source->tensors()[index];
    if (tensor.dtype != "f32")
      return Error{tensor.label() + " is of type " + tensor.dtype +
                   ", but masters are f32"};
    size_t has = 0;
    for (const std::string &state : states)
      if (auto found = parts[state].find(name); found != parts[state].end()) {
        const Tensor &held = source->tensors()[found->second];
        if (held.dtype != "f32" || held.shape != tensor.shape)
          return Error{"optimizer state '" + state + "' of '" +
                       printable(name) + "' is not f32 of the same shape"};
        ++has;
      }
    if (has != 0 && has != states.size())
      return Error{"'" + printable(name) + "' has only " + std::to_string(has) +
                   " of the optimizer states " + listed(states)};
    StoredLayout &layout = has == 0 ? frozen : trained;
    Member member;
    member.name = name;
    for (const std::string &alias : tensor.aliases)
      member.aliases.push_back(alias.substr(alias.find('/') + 1));
    member.shape = tensor.shape;
    member.elements = int64_t(tensor.bytes / sizeof(float));
    if (!layout.members.empty())
      member.offset =
          layout.members.back().offset + layout.members.back().elements;
    layout.members.push_back(std::move(member));
  }
  for (StoredLayout *layout : {&trained, &frozen})
    if (!layout->members.empty())
      stored.layouts.push_back(std::move(*layout));
  if (stored.layouts.empty())
    return Error{"it holds no parameters"};
  return {};
}

Status Exchange::addBuffers() {
  for (auto &[name, index] : parts["buffer"]) {
    const Tensor &tensor = source->tensors()[index];
    Buffer buffer;
    buffer.name = name;
    buffer.dtype = tensor.dtype;
    buffer.shape = tensor.shape;
    stored.buffers.push_back(std::move(buffer));
  }
  return {};
}

Status writeImported(Exchange &exchange, const Arguments &arguments) {
  FSDPC_TRY(exchange.readNumbers(arguments));
  FSDPC_TRY(exchange.addLayouts());
  FSDPC_TRY(exchange.addBuffers());
  CheckpointManifest &stored = exchange.stored;
  stored.settings = {{"converted from", arguments.from}};
  cutFor(stored, arguments.ranks);
  CheckpointValues values;
  values.parameter = [&](const Member &member, int32_t part, int64_t begin,
                         int64_t count, float *to) {
    const std::string &kind =
        part == 0 ? "value" : exchange.states[size_t(part - 1)];
    return exchange.source->read(exchange.parts[kind].at(member.name),
                                 uint64_t(begin) * sizeof(float), to,
                                 uint64_t(count) * sizeof(float));
  };
  values.buffer = [&](const Buffer &buffer, void *to) {
    size_t index = exchange.parts["buffer"].at(buffer.name);
    return exchange.source->read(index, 0, to,
                                 exchange.source->tensors()[index].bytes);
  };
  return writeCheckpoint(stored, values, arguments.output);
}

int fromTorch(const Arguments &arguments) {
  bool isExchange = arguments.from != "safetensors";
  std::string path = arguments.input, scratch;
  if (isExchange) {
    // Beside the output, where there is room for the checkpoint too.
    scratch = folderOf(arguments.output) + ".fsdpc-convert-" +
              std::to_string(getpid()) + ".safetensors";
    path = scratch;
    Status ran =
        runTorch(arguments, {"from-" + arguments.from, arguments.input, path});
    if (!ran) {
      unlink(scratch.c_str());
      return report(ran.error());
    }
  }
  Exchange exchange;
  auto opened = openTensors(path, Content::values);
  if (!scratch.empty())
    unlink(scratch.c_str()); // it stays readable as long as it is open
  if (!opened)
    return report(opened.error());
  exchange.source = *std::move(opened);
  sortNames(exchange, isExchange);
  Status written = writeImported(exchange, arguments);
  if (!written)
    return report({"cannot convert '" + arguments.input +
                   "': " + written.error().message});
  return done;
}

} // namespace

int convert(const Arguments &arguments) {
  return arguments.to.empty() ? fromTorch(arguments) : toTorch(arguments);
}

} // namespace fsdpc::ckpt
