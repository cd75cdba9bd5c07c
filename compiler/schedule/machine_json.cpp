// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Machines as JSON. Reading is strict: a figure that is missing, unknown or out
// of its range is an error that names it by its path, since a wrong cost would
// only show as a bad schedule.

#include "compiler/schedule/machine.h"
#include "runtime/support/json_text.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

namespace fsdpc::schedule {

namespace {

using Json = nlohmann::ordered_json;

// The legal numbers of a figure: low (or above it, if `open`) to high.
struct Range {
  double low, high;
  bool open = false;
  const char *text;
  bool whole = false;
};
constexpr Range aRate = {0, 1e9, true, "a number above 0 and up to 1e9"},
                rateOrNone = {0, 1e9, false, "a number from 0 to 1e9"},
                aTime = {0, 1e6, false, "a number of us from 0 to 1e6"},
                aShare = {0, 100, false, "a number from 0 to 100"},
                aSize = {0, 1e6, false, "a number of GiB from 0 to 1e6"},
                aCount = {0, 1 << 20, false, "an integer from 0 to 1048576",
                          true},
                someOf = {1, 1 << 20, false, "an integer from 1 to 1048576",
                          true};

[[noreturn]] void fail(const std::string &message) {
  throw std::runtime_error(message);
}

// One object of the file, with its path for messages. Its keys are read one by
// one; `end` refuses the others.
class Fields {
public:
  Fields(const Json &json, std::string path)
      : json(json), path(std::move(path)) {
    if (!json.is_object())
      fail("'" + this->path + "' is not an object");
  }

  double number(const char *key, Range range) {
    const Json &value = at(key, range.text);
    double number = value.is_number() ? value.get<double>() : NAN;
    bool inside = range.open ? number > range.low : number >= range.low;
    if (!inside || number > range.high ||
        (range.whole && number != std::floor(number)))
      fail("'" + pathOf(key) + "' is " + runtime::dump(value).substr(0, 40) +
           "; it must be " + range.text);
    return number;
  }
  bool flag(const char *key) {
    const Json &value = at(key, "true or false");
    if (!value.is_boolean())
      fail("'" + pathOf(key) + "' is " + runtime::dump(value).substr(0, 40) +
           "; it must be true or false");
    return value.get<bool>();
  }
  std::string text(const char *key) {
    const Json &value = at(key, "a text");
    if (!value.is_string() || value.get_ref<const std::string &>().empty())
      fail("'" + pathOf(key) + "' is " + runtime::dump(value).substr(0, 40) +
           "; it must be a text");
    return value.get<std::string>();
  }
  Fields object(const char *key) {
    return Fields(at(key, "an object"), pathOf(key));
  }
  bool has(const char *key) const { return json.contains(key); }
  const Json &all() const { return json; }
  std::string pathOf(const std::string &key) const {
    return path.empty() ? key : path + "." + key;
  }
  // After the last key. The source of the figures is for readers.
  void end(bool sourced = true) {
    if (sourced)
      text("source");
    for (const auto &[key, value] : json.items())
      if (!known.count(key))
        fail("'" + pathOf(key) + "' is not known");
  }

private:
  const Json &at(const char *key, const char *wanted) {
    known.insert(key);
    auto found = json.find(key);
    if (found == json.end())
      fail("'" + pathOf(key) + "' is missing; it must be " + wanted);
    return *found;
  }

  const Json &json;
  std::string path;
  std::set<std::string> known;
};

// A rate of an object, by the name that it also has in `measured`.
struct Named {
  const char *key;
  Speed &speed;
};

// Ends an object that may have some of its rates a second time in `measured`.
// More than the stated rate is another unit or a mistake.
void endMeasured(Fields &fields, std::initializer_list<Named> speeds) {
  if (fields.has("measured")) {
    Fields measured = fields.object("measured");
    for (auto [key, speed] : speeds)
      if (measured.has(key)) {
        speed.measured = measured.number(key, aRate);
        if (speed.measured > speed.stated)
          fail("'" + measured.pathOf(key) + "' is " +
               runtime::dump(Json(speed.measured)) + ", more than '" +
               fields.pathOf(key) + "'");
      }
    measured.end();
  }
  fields.end();
}

Rate rateFrom(Fields fields) {
  Rate rate;
  rate.gflops = fields.number("gflops", rateOrNone);
  rate.memoryGBs = fields.number("memory_gbs", aRate);
  rate.callUs = fields.number("call_us", aTime);
  endMeasured(fields,
              {{"gflops", rate.gflops}, {"memory_gbs", rate.memoryGBs}});
  return rate;
}

Rates ratesFrom(Fields fields) {
  Rates rates;
  for (size_t type = 0; type < rates.size(); ++type)
    rates[type] = rateFrom(fields.object(dtypeOf(ElementType(type)).data()));
  fields.end(/*sourced=*/false);
  return rates;
}

Link linkFrom(Fields fields) {
  Link link;
  link.gatherGBs = fields.number("all_gather_gbs", aRate);
  link.reduceGBs = fields.number("reduce_scatter_gbs", aRate);
  link.latencyUs = fields.number("latency_us", aTime);
  link.cores = fields.number("cores", aShare);
  endMeasured(fields, {{"all_gather_gbs", link.gatherGBs},
                       {"reduce_scatter_gbs", link.reduceGBs}});
  return link;
}

Store storeFrom(Fields fields) {
  Store store;
  store.readGBs = fields.number("read_gbs", aRate);
  store.writeGBs = fields.number("write_gbs", aRate);
  endMeasured(fields,
              {{"read_gbs", store.readGBs}, {"write_gbs", store.writeGBs}});
  return store;
}

Machine parse(const Json &json) {
  Machine machine;
  Fields top(json, "");
  machine.name = top.text("name");
  Fields rates = top.object("rates");
  for (const auto &[name, value] : rates.all().items()) {
    const auto &classes = opClasses();
    if (std::find(classes.begin(), classes.end(), name) == classes.end())
      fail("'rates." + name + "' is not known");
    machine.rates[name] = ratesFrom(Fields(value, "rates." + name));
  }
  if (!machine.rates.count("default"))
    fail("'rates.default' is missing");
  Fields links = top.object("links");
  machine.node = linkFrom(links.object("node"));
  machine.nodes = linkFrom(links.object("nodes"));
  machine.offload = storeFrom(links.object("offload"));
  links.end(/*sourced=*/false);
  machine.ranksPerNode = int(top.number("ranks_per_node", aCount));
  Fields sharing = top.object("sharing");
  machine.sharedLink = sharing.flag("one_link");
  machine.computeSlowdown = sharing.number("compute_slowdown", aShare);
  sharing.end();
  Fields memory = top.object("memory");
  machine.memoryGiB = memory.number("gib", aSize);
  memory.end();
  if (top.has("processors")) {
    Fields processors = top.object("processors");
    machine.processors = int(processors.number("count", someOf));
    processors.end();
  }
  top.end(/*sourced=*/false);
  return machine;
}

} // namespace

Result<Machine> machineFromJson(std::string_view text) {
  // nlohmann's parser throws; nothing leaves this function.
  try {
    return parse(runtime::parseJson(text, /*deepest=*/7));
  } catch (const std::exception &failure) {
    return inputError(std::string("not a machine: ") + failure.what());
  }
}

std::string toJson(const Machine &machine,
                   const std::map<std::string, std::string> &sources) {
  auto sourced = [&](const std::string &path, Json object) {
    auto found = sources.find(path);
    object["source"] = found != sources.end() ? found->second : "measured";
    return object;
  };
  using Speeds = std::vector<std::pair<const char *, Speed>>;
  auto withSpeeds = [&](const std::string &path, const Speeds &speeds,
                        const Json &others) {
    Json object = Json::object(), measured = Json::object();
    for (const auto &[key, speed] : speeds) {
      object[key] = speed.stated;
      if (speed.measured > 0)
        measured[key] = speed.measured;
    }
    object.update(others);
    object = sourced(path, std::move(object));
    if (!measured.empty())
      object["measured"] = sourced(path + ".measured", std::move(measured));
    return object;
  };
  auto link = [&](const std::string &path, const Link &link) {
    return withSpeeds(path,
                      {{"all_gather_gbs", link.gatherGBs},
                       {"reduce_scatter_gbs", link.reduceGBs}},
                      {{"latency_us", link.latencyUs}, {"cores", link.cores}});
  };
  Json rates = Json::object();
  for (const auto &[name, types] : machine.rates)
    for (size_t type = 0; type < types.size(); ++type) {
      std::string typeName(dtypeOf(ElementType(type)));
      const Rate &rate = types[type];
      rates[name][typeName] =
          withSpeeds("rates." + name + "." + typeName,
                     {{"gflops", rate.gflops}, {"memory_gbs", rate.memoryGBs}},
                     {{"call_us", rate.callUs}});
    }
  Json json = {
      {"name", machine.name},
      {"rates", rates},
      {"links",
       {{"node", link("links.node", machine.node)},
        {"nodes", link("links.nodes", machine.nodes)},
        {"offload", withSpeeds("links.offload",
                               {{"read_gbs", machine.offload.readGBs},
                                {"write_gbs", machine.offload.writeGBs}},
                               Json::object())}}},
      {"ranks_per_node", machine.ranksPerNode},
      {"sharing",
       sourced("sharing", {{"one_link", machine.sharedLink},
                           {"compute_slowdown", machine.computeSlowdown}})},
      {"memory", sourced("memory", {{"gib", machine.memoryGiB}})}};
  if (machine.processors > 0)
    json["processors"] = sourced("processors", {{"count", machine.processors}});
  return runtime::dump(json, 1) + "\n";
}

} // namespace fsdpc::schedule
