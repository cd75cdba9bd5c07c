// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads traces. A trace may come from elsewhere or be edited, so every value is
// checked for its type, and an event that the runtime would not write is
// skipped like the many kinds of events that the format has.
#include "compiler/schedule/trace.h"
#include "runtime/support/json_text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>

namespace fsdpc::schedule {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array computing = {"launch",         "matmul",      "attention",
                                  "attention_grad", "convolution", "pooling"};
constexpr std::array besides = {"all_gather", "gather_secondary",
                                "keep_secondary", "reduce_scatter",
                                "accumulate"};

// Eleven days. Longer durations would overflow as costs.
constexpr double longestUs = 1e12;

template <class Names> bool holds(const Names &names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Reads the value of a key into `to`. Returns false if it is absent or of
// another type.
template <class Value> bool read(const Json &from, const char *key, Value &to) {
  auto found = from.find(key);
  if (found == from.end())
    return false;
  if constexpr (std::is_same_v<Value, std::string>) {
    if (!found->is_string())
      return false;
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (!found->is_boolean())
      return false;
  } else if constexpr (std::is_same_v<Value, int64_t>) {
    if (!found->is_number_integer())
      return false;
  } else if (!found->is_number()) {
    return false;
  }
  to = found->get<Value>();
  return true;
}

// Returns false for events of another kind, and for those that the runtime
// would not write.
bool readCommand(const Json &event, TracedCommand &command) {
  std::string kind;
  if (!event.is_object() || !read(event, "ph", kind) || kind != "X")
    return false;
  auto arguments = event.find("args");
  if (arguments == event.end() || !arguments->is_object())
    return false;
  bool whole = read(event, "ts", command.beginUs) &&
               read(event, "dur", command.us) && command.us >= 0 &&
               command.us <= longestUs && read(event, "tid", command.stream) &&
               read(event, "cat", command.op) &&
               read(event, "name", command.title) &&
               read(*arguments, "step", command.step) &&
               read(*arguments, "microbatch", command.microbatch);
  read(*arguments, "flops", command.flops);
  read(*arguments, "unit", command.unit);
  read(*arguments, "backward", command.backward);
  return whole && (command.computes() || holds(besides, command.op));
}

} // namespace

bool TracedCommand::computes() const { return holds(computing, op); }

std::map<Trace::Microbatch, std::vector<const TracedCommand *>>
Trace::microbatches() const {
  std::map<Microbatch, std::vector<const TracedCommand *>> found;
  for (const TracedCommand &command : commands)
    if (command.computes())
      found[{command.step, command.microbatch}].push_back(&command);
  return found;
}

Result<Trace> parseTrace(std::string_view text) {
  Json root = runtime::parseJsonOrNull(text, /*deepest=*/7);
  if (root.is_null())
    return inputError("is not JSON; give a file that a program's --trace has "
                      "written");
  auto events = root.find("traceEvents");
  if (!root.is_object() || events == root.end() || !events->is_array())
    return inputError(
        "is not a trace: it has no 'traceEvents'; give a file that a "
        "program's --trace has written");
  Trace trace;
  bool computes = false;
  for (const Json &event : *events) {
    TracedCommand command;
    if (!readCommand(event, command))
      continue;
    computes |= command.computes();
    trace.commands.push_back(std::move(command));
  }
  if (!computes)
    return inputError("has no commands of a microbatch; give a file that a "
                      "program's --trace has written");
  std::stable_sort(trace.commands.begin(), trace.commands.end(),
                   [](const TracedCommand &a, const TracedCommand &b) {
                     return a.beginUs < b.beginUs;
                   });
  return trace;
}

} // namespace fsdpc::schedule
