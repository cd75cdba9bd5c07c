// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A problem of a large model has thousands of ops and tensors, so they are
// arrays without keys, in the order of the fields of problem.h. Labels repeat
// (one per unit), and stand in a list of their own.

#include "compiler/schedule/problem_json.h"
#include "compiler/schedule/rounding.h"
#include "runtime/support/json_text.h"

#include <nlohmann/json.hpp>

#include <map>

namespace fsdpc::schedule {

namespace {

using Json = nlohmann::ordered_json;

class Labels {
public:
  int number(const std::string &label) {
    auto [entry, isNew] = numbers.try_emplace(label, int(list.size()));
    if (isNew)
      list.push_back(label);
    return entry->second;
  }
  Json list = Json::array();

private:
  std::map<std::string, int> numbers;
};

template <class T> Json orNull(const std::optional<T> &value) {
  return value ? Json(*value) : Json();
}

template <class T> std::optional<T> optionalFrom(const Json &json) {
  return json.is_null() ? std::nullopt : std::optional<T>(json.get<T>());
}

Problem parse(const Json &json) {
  Problem problem;
  auto label = [&](const Json &number) {
    return json.at("labels").at(number.get<size_t>()).get<std::string>();
  };
  problem.baseBytes = json.at("base_bytes");
  // Problems without contention have neither.
  problem.contention.ofCompute = json.value("compute_slowdown", 0.0);
  problem.contention.ofCommunication =
      json.value("communication_slowdown", 0.0);
  for (const Json &us : json.at("ops"))
    problem.ops.push_back({us.get<double>()});
  for (const Json &c : json.at("collectives")) {
    Collective collective;
    std::string kind = c.at("kind");
    if (kind != "gather" && kind != "reduce")
      throw std::runtime_error("unknown kind '" + kind + "'");
    if (kind == "reduce")
      collective.kind = CollectiveKind::Reduce;
    collective.channel = c.at("channel");
    collective.durationUs = c.at("us");
    collective.isLocal = c.value("local", false);
    collective.earliest = c.at("earliest");
    collective.latest = c.at("latest");
    collective.lastUse = optionalFrom<int>(c.at("last_use"));
    for (const Json &b : c.at("buffers"))
      collective.buffers.push_back({b.at(0), b.at(1), b.at(2)});
    collective.label = label(c.at("label"));
    problem.collectives.push_back(std::move(collective));
  }
  for (const Json &t : json.at("tensors"))
    problem.tensors.push_back({t.at(0), t.at(1), t.at(2), t.at(3),
                               optionalFrom<int64_t>(t.at(4)), label(t.at(5))});
  for (const Json &i : json.at("later"))
    problem.later.push_back({i.at(0), i.at(1), i.at(2), i.at(3),
                             optionalFrom<int64_t>(i.at(4)), label(i.at(5))});
  for (const Json &s : json.at("segments"))
    problem.segments.push_back(
        {s.at(0), s.at(1), label(s.at(2)), s.size() > 3 && s.at(3) == 1});
  return problem;
}

} // namespace

std::string toJson(const Problem &problem) {
  Labels labels;
  Json ops = Json::array(), collectives = Json::array();
  Json tensors = Json::array(), later = Json::array();
  Json segments = Json::array();
  for (const Op &op : problem.ops)
    ops.push_back(roundedUs(op.durationUs));
  for (const Collective &c : problem.collectives) {
    Json buffers = Json::array();
    for (const Buffer &b : c.buffers)
      buffers.push_back(Json::array({b.bytes, b.alignment, b.definition}));
    bool gathers = c.kind == CollectiveKind::Gather;
    Json collective = {{"kind", gathers ? "gather" : "reduce"},
                       {"channel", c.channel},
                       {"us", roundedUs(c.durationUs)},
                       {"earliest", c.earliest},
                       {"latest", c.latest},
                       {"last_use", orNull(c.lastUse)},
                       {"buffers", buffers},
                       {"label", labels.number(c.label)}};
    if (c.isLocal)
      collective["local"] = true;
    collectives.push_back(std::move(collective));
  }
  for (const Tensor &t : problem.tensors)
    tensors.push_back(
        Json::array({t.bytes, t.alignment, t.begin, t.end,
                     orNull(t.fixedOffset), labels.number(t.label)}));
  for (const Interval &i : problem.later)
    later.push_back(
        Json::array({i.bytes, i.alignment, i.begin, i.end,
                     orNull(i.fixedOffset), labels.number(i.label)}));
  for (const Segment &s : problem.segments)
    segments.push_back(
        Json::array({s.begin, s.end, labels.number(s.label), int(s.backward)}));
  // One field per line: short enough to look at, long enough to stay small.
  std::string text = "{";
  auto field = [&](const char *name, const Json &value) {
    text += (text.size() > 1 ? ",\n \"" : "\n \"") + std::string(name) +
            "\": " + runtime::dump(value);
  };
  field("base_bytes", problem.baseBytes);
  if (problem.contention.ofCompute > 0)
    field("compute_slowdown", problem.contention.ofCompute);
  if (problem.contention.ofCommunication > 0)
    field("communication_slowdown", problem.contention.ofCommunication);
  field("labels", labels.list);
  field("segments", segments);
  field("collectives", collectives);
  field("ops", ops);
  field("tensors", tensors);
  field("later", later);
  return text + "\n}\n";
}

Result<Problem> problemFromJson(std::string_view text) {
  // nlohmann's parser throws; nothing leaves this function.
  try {
    Problem problem = parse(runtime::parseJson(text, /*deepest=*/7));
    if (std::string message = problem.check(); !message.empty())
      return inputError("not a scheduling problem: " + message);
    return problem;
  } catch (const std::exception &failure) {
    return inputError(std::string("not a scheduling problem: ") +
                      failure.what());
  }
}

} // namespace fsdpc::schedule
