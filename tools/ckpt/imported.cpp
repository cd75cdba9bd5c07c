// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sorts tensors into the parameters, states and buffers of a checkpoint.
// Parameters whose states have the same names become a layout: so groups may
// have different optimizers. Averages of rows and columns, which are not one
// number per element, are buffers as in a run's own checkpoints.
#include "tools/ckpt/imported.h"
#include "runtime/abi/factors.h"
#include "runtime/support/concat.h"
#include "runtime/support/spelling.h"
#include "tools/ckpt/checkpoint_writer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

namespace fsdpc::ckpt {

using namespace runtime;

namespace {

// The order in which programs from before states had names hold them; others
// find a state by its name. States with other names, such as "state0", follow
// in the order of these.
const std::vector<std::string> stateOrder = {
    "exp_avg",    "exp_avg_sq", "exp_inf",   "max_exp_avg_sq",
    "square_avg", "acc_delta",  "grad_avg",  "momentum_buffer",
    "sum",        "prev",       "step_size", "ax"};
// Averages of rows and columns: the ends of their buffers' names.
const std::vector<std::string> factors = {rowFactors + 1, columnFactors + 1,
                                          vectorFactors + 1};
const char average[] = "ema"; // the last state, if there is one

bool isIn(const std::vector<std::string> &names, const std::string &name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// "state10" comes after "state9".
bool comesBefore(const std::string &a, const std::string &b) {
  auto place = [](const std::string &name) {
    auto known = std::find(stateOrder.begin(), stateOrder.end(), name);
    return std::tuple(name == average, known - stateOrder.begin(), name.size());
  };
  return std::pair(place(a), a) < std::pair(place(b), b);
}

// Builds the manifest of the new checkpoint from the names of tensors. Call the
// functions in the order in which they are declared.
struct Import {
  explicit Import(const TensorSource &source) : source(source) {}

  const TensorSource &source;
  // The index of each tensor, by part ("value", "buffer", a state, "step") and
  // name.
  std::map<std::string, std::map<std::string, size_t>> parts;
  std::vector<std::string> states; // all that occur, in order
  // Per layout: the names of its states.
  std::vector<std::vector<std::string>> statesOf;
  std::map<std::string, size_t> layoutOf; // of a parameter
  std::map<std::string, size_t> bufferOf; // tensors of buffers, by name
  CheckpointManifest stored;

  void sortNames(bool isExchange);
  Result<std::optional<int64_t>> numberOf(const std::string &part,
                                          const std::string &name) const;
  Status readNumbers(const Arguments &arguments);
  Result<std::vector<std::string>> statesWith(const std::string &name) const;
  Status addParameter(const std::string &name, size_t index);
  Status addBuffers();
};

// Fills `parts` and `states`. Names of an exchange file say what a tensor is
// ("exp_avg/NAME"). Those of a plain file do not, so tensors that torch keeps
// in buffers are known by their type or by the names of batch norm's
// statistics.
void Import::sortNames(bool isExchange) {
  auto &tensors = source.tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string &name = tensors[i].name;
    size_t slash = name.find('/');
    auto endsWith = [&](const std::string &end) {
      return name.size() >= end.size() &&
             name.compare(name.size() - end.size(), end.size(), end) == 0;
    };
    if (isExchange && slash != std::string::npos)
      parts[name.substr(0, slash)][name.substr(slash + 1)] = i;
    else if (isExchange)
      parts["number"][name] = i;
    else
      parts[tensors[i].dtype != "f32" || endsWith("running_mean") ||
                    endsWith("running_var")
                ? "buffer"
                : "value"][name] = i;
  }
  const std::vector<std::string> others = {"value", "buffer", "number", "step"};
  for (auto &[part, names] : parts)
    if (!isIn(others, part) && !isIn(factors, part))
      states.push_back(part);
  std::sort(states.begin(), states.end(), comesBefore);
}

// Returns nothing if the file does not have the number.
Result<std::optional<int64_t>> Import::numberOf(const std::string &part,
                                                const std::string &name) const {
  auto names = parts.find(part);
  if (names == parts.end() || !names->second.count(name))
    return std::optional<int64_t>();
  size_t index = names->second.at(name);
  const Tensor &tensor = source.tensors()[index];
  int64_t number;
  if (tensor.dtype != "i64" || tensor.bytes != sizeof number)
    return inputError(tensor.label() + " is not a whole number");
  FSDPC_TRY(source.read(index, 0, &number, sizeof number));
  if (number < 0)
    return inputError(concat("its ", part == "number" ? name : tensor.label(),
                             " is ", number));
  return std::optional(number);
}

// The flags come before the numbers of the file, and the run's own step before
// those of its parameters.
Status Import::readNumbers(const Arguments &arguments) {
  TrainingState &state = stored.state;
  auto read = [&](const char *name, std::optional<int64_t> given,
                  int64_t &number) -> Status {
    auto found = numberOf("number", name);
    FSDPC_TRY(found);
    number = given ? *given : found->value_or(number);
    return {};
  };
  // Without a step of the run, that of the parameter with most updates is
  // taken.
  for (auto &[name, index] : parts["step"]) {
    auto updates = numberOf("step", name);
    FSDPC_TRY(updates);
    state.step = std::max(state.step, **updates);
  }
  FSDPC_TRY(read("step", arguments.step, state.step));
  FSDPC_TRY(read("sample", arguments.samples, state.sample));
  FSDPC_TRY(read("skipped", {}, state.scaler.skips));
  FSDPC_TRY(read("in_a_row", {}, state.scaler.inARow));
  state.scaler.skips = std::min(state.scaler.skips, state.step);
  auto scale = parts["number"].find("scale");
  if (scale == parts["number"].end())
    return {};
  const Tensor &tensor = source.tensors()[scale->second];
  if (tensor.dtype != "f32" || tensor.bytes != sizeof(float))
    return inputError("its scale is not an f32 number");
  FSDPC_TRY(source.read(scale->second, 0, &state.scaler.scale, sizeof(float)));
  if (!(state.scaler.scale > 0 && std::isfinite(state.scaler.scale)))
    return inputError(concat("its loss scale is ", state.scaler.scale));
  return {};
}

// Returns the names of a parameter's states.
Result<std::vector<std::string>>
Import::statesWith(const std::string &name) const {
  std::vector<std::string> has;
  const Tensor &value = source.tensors()[parts.at("value").at(name)];
  for (const std::string &state : states) {
    auto found = parts.at(state).find(name);
    if (found == parts.at(state).end())
      continue;
    const Tensor &held = source.tensors()[found->second];
    if (held.dtype != "f32" || held.shape != value.shape)
      return inputError("optimizer state '" + printable(state) + "' of '" +
                        printable(name) + "' is not f32 of the same shape");
    has.push_back(state);
  }
  return has;
}

Status Import::addParameter(const std::string &name, size_t index) {
  const Tensor &tensor = source.tensors()[index];
  if (tensor.dtype != "f32")
    return inputError(tensor.label() + " is of type " + tensor.dtype +
                      ", but masters are f32");
  auto has = statesWith(name);
  FSDPC_TRY(has);
  bool isFactored =
      std::any_of(factors.begin(), factors.end(), [&](const auto &factor) {
        return parts.count(factor) && parts.at(factor).count(name);
      });
  // The layout with the same states, or a new one.
  size_t at = 0;
  while (at < statesOf.size() &&
         (statesOf[at] != *has || stored.layouts[at].factored != isFactored))
    ++at;
  if (at == statesOf.size()) {
    StoredLayout layout;
    layout.name = has->empty() && !isFactored ? "frozen" : "trained";
    layout.states = int32_t(has->size());
    layout.average = !has->empty() && has->back() == average;
    layout.factored = isFactored;
    layout.stateNames = *has;
    if (layout.average)
      layout.stateNames.pop_back();
    stored.layouts.push_back(std::move(layout));
    statesOf.push_back(*std::move(has));
  }
  layoutOf[name] = at;
  StoredLayout &layout = stored.layouts[at];
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
  // A state that is older than the run, as after --step 0, begins with it.
  int64_t done = stored.state.step - stored.state.scaler.skips;
  auto updates = numberOf("step", name);
  FSDPC_TRY(updates);
  layout.since.push_back(std::max<int64_t>(0, done - updates->value_or(done)));
  return {};
}

// Buffers keep their order by name, factors follow; writeRank writes them in
// this order too.
Status Import::addBuffers() {
  auto add = [&](const std::string &name, size_t index, bool isState) {
    const Tensor &tensor = source.tensors()[index];
    Buffer buffer;
    buffer.name = name;
    buffer.dtype = tensor.dtype;
    buffer.shape = tensor.shape;
    buffer.optimizerState = isState;
    bufferOf[name] = index;
    stored.buffers.push_back(std::move(buffer));
  };
  for (auto &[name, index] : parts["buffer"])
    add(name, index, false);
  for (const std::string &factor : factors)
    for (auto &[name, index] : parts[factor]) {
      if (source.tensors()[index].dtype != "f32")
        return inputError("optimizer state '" + factor + "' of '" +
                          printable(name) + "' is not f32");
      add(name + "." + factor, index, true);
    }
  return {};
}

} // namespace

Status writeImported(const TensorSource &source, bool isExchange,
                     const Arguments &arguments) {
  Import import(source);
  import.sortNames(isExchange);
  FSDPC_TRY(import.readNumbers(arguments));
  for (auto &[name, index] : import.parts["value"])
    FSDPC_TRY(import.addParameter(name, index));
  CheckpointManifest &stored = import.stored;
  if (stored.layouts.empty())
    return inputError("it holds no parameters");
  FSDPC_TRY(import.addBuffers());
  stored.settings = {{"converted from", arguments.from}};
  cutFor(stored, arguments.ranks);
  CheckpointValues values;
  values.parameter = [&](const Member &member, int32_t part, int64_t begin,
                         int64_t count, float *to) {
    size_t layout = import.layoutOf.at(member.name);
    const std::string kind =
        part == 0 ? "value" : import.statesOf[layout][size_t(part - 1)];
    return source.read(import.parts[kind].at(member.name),
                       uint64_t(begin) * sizeof(float), to,
                       uint64_t(count) * sizeof(float));
  };
  values.buffer = [&](const Buffer &buffer, void *to) {
    size_t index = import.bufferOf.at(buffer.name);
    return source.read(index, 0, to, source.tensors()[index].bytes);
  };
  return writeCheckpoint(stored, values, arguments.output);
}

} // namespace fsdpc::ckpt
