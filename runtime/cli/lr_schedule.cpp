// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Parses --lr-schedule and computes rates. Each kind takes the keys that its
// formula has (lr_schedule.h); a key of another kind is refused, since ignoring
// it would train with another schedule than was meant.
#include "runtime/cli/lr_schedule.h"
#include "runtime/cli/flag_values.h"
#include "runtime/support/concat.h"
#include "runtime/support/foreign_names.h"
#include "runtime/support/input_file.h"
#include "runtime/support/nearest.h"
#include "runtime/support/spelling.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

namespace fsdpc::runtime {

namespace {

// The kinds in the order of the enum, with the keys that each takes and those
// that it needs.
struct Kind {
  const char *name;
  std::vector<std::string> keys, required;
};
const std::vector<Kind> kinds = {
    {"constant", {"warmup"}, {}},
    {"linear", {"warmup", "min"}, {}},
    {"cosine", {"warmup", "min"}, {}},
    {"polynomial", {"warmup", "min", "power"}, {}},
    {"step", {"warmup", "size", "gamma"}, {"size"}},
    {"exponential", {"warmup", "gamma"}, {"gamma"}},
    {"wsd", {"warmup", "min", "decay"}, {}},
    {"onecycle", {"start", "div", "final", "anneal"}, {}}};

// Parses a whole number of at least `least`.
Status parse(const std::string &key, const std::string &value, int64_t least,
             int64_t &to) {
  if (parseInteger(value, to) && to >= least)
    return {};
  return commandLineError(
      concat(key, " '", value, "' is not a whole number of at least ", least));
}

// Parses a number of at least 0, or above 0.
Status parse(const std::string &key, const std::string &value, bool mayBeZero,
             double &to) {
  if (parseNumber(value, to) && (to > 0 || (mayBeZero && to == 0)))
    return {};
  return commandLineError(key + " '" + value + "' is not a number " +
                          (mayBeZero ? "of at least 0" : "above 0"));
}

// parseSchedule has checked that the kind takes the key.
Status setKey(LrSchedule &schedule, const std::string &key,
              const std::string &value) {
  if (key == "warmup")
    return parse(key, value, int64_t(0), schedule.warmup);
  if (key == "size")
    return parse(key, value, int64_t(1), schedule.size);
  if (key == "decay")
    return parse(key, value, int64_t(1), schedule.decay);
  if (key == "min")
    return parse(key, value, true, schedule.minimum);
  if (key == "power")
    return parse(key, value, false, schedule.power);
  if (key == "gamma")
    return parse(key, value, false, schedule.gamma);
  if (key == "div" || key == "final") {
    double &factor = key == "div" ? schedule.division : schedule.final;
    FSDPC_TRY(parse(key, value, false, factor));
    if (factor < 1)
      return commandLineError(key + " '" + value +
                              "' is not a number of at least 1");
    return {};
  }
  if (key == "start") {
    FSDPC_TRY(parse(key, value, true, schedule.start));
    if (schedule.start > 1)
      return commandLineError("start '" + value +
                              "' is not a number of at most 1");
    return {};
  }
  // The last one is "anneal", with the words of torch.
  if (value != "cos" && value != "linear")
    return commandLineError("anneal '" + value +
                            "' is neither 'cos' nor 'linear'");
  schedule.straight = value == "linear";
  return {};
}

// A line has some twenty bytes, and a schedule a line a step.
constexpr uint64_t mostRatesBytes = 1 << 30;

// Reads lines of a step and its rate. Empty lines, and what follows a '#', are
// skipped. The rates must begin at step 0, so that every step has one.
Result<LrSchedule> readRates(const std::string &path) {
  Result<InputFile> file = InputFile::open(path);
  FSDPC_TRY(file);
  Result<std::string> text = file->readAll(mostRatesBytes);
  FSDPC_TRY(text);
  LrSchedule schedule;
  schedule.kind = LrSchedule::file;
  std::istringstream lines(*text);
  std::string line;
  for (int64_t number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string first, second, rest;
    if (!(words >> first))
      continue;
    words >> second >> rest;
    int64_t step;
    double rate;
    auto fault = [&](const std::string &what) {
      return inputError(concat("'", path, "' line ", number, ": ", what));
    };
    if (!parseInteger(first, step) || !parseNumber(second, rate) || rate < 0 ||
        !rest.empty())
      return fault("'" + printable(line) +
                   "' is not a step and a rate of at least 0");
    int64_t least =
        schedule.rates.empty() ? 0 : schedule.rates.back().first + 1;
    if (step < least || (schedule.rates.empty() && step != 0))
      return fault(concat(
          "steps begin at 0 and rise, but step ", first, " stands where ",
          least, least ? " or a later one is expected" : " is expected"));
    schedule.rates.push_back({step, rate});
  }
  if (schedule.rates.empty())
    return inputError("'" + path + "' has no line with a step and a rate");
  return schedule;
}

} // namespace

// The first part is the kind, the others are key=value in any order.
Result<LrSchedule> parseSchedule(const std::string &text) {
  if (text.rfind("file:", 0) == 0)
    return readRates(text.substr(5));
  std::istringstream parts(text);
  std::string part;
  std::getline(parts, part, ',');
  auto kind = std::find_if(kinds.begin(), kinds.end(),
                           [&](const Kind &each) { return each.name == part; });
  if (kind == kinds.end()) {
    std::vector<std::string> names;
    for (const Kind &each : kinds)
      names.push_back(each.name);
    std::string native = nativeValue(part);
    bool known = std::count(names.begin(), names.end(), native) > 0;
    std::string near = meant(known ? native : part, names);
    names.push_back("file:FILE");
    return commandLineError(
        "'" + part + "' is not a schedule" +
        (near.empty() ? "; there are " + listed(names) : near));
  }
  LrSchedule schedule;
  schedule.kind = LrSchedule::Kind(kind - kinds.begin());
  std::map<std::string, std::string> given;
  while (std::getline(parts, part, ',')) {
    size_t equals = part.find('=');
    // Without '=' the whole part is the key and its value is empty, which no
    // key accepts.
    std::string key = part.substr(0, equals);
    std::string value =
        equals == std::string::npos ? "" : part.substr(equals + 1);
    if (!given.insert({key, value}).second)
      return commandLineError("'" + key + "' stands twice in '" + text + "'");
    if (std::count(kind->keys.begin(), kind->keys.end(), key) == 0) {
      std::string near = meant(key, kind->keys);
      return commandLineError(
          "'" + key + "' is not a part of the schedule '" + kind->name + "'" +
          (near.empty() ? "; there are " + listed(kind->keys) : near));
    }
    FSDPC_TRY(setKey(schedule, key, value));
  }
  for (const std::string &key : kind->required)
    if (!given.count(key))
      return commandLineError(std::string("the schedule '") + kind->name +
                              "' needs '" + key + "', as in '" + kind->name +
                              "," + key +
                              (key == "size" ? "=100'" : "=0.999'"));
  return schedule;
}

// Returns the point between two rates at which `passed` of the way is behind.
static double between(double from, double to, double passed, bool straight) {
  double left = straight ? 1 - passed : 0.5 * (1 + std::cos(M_PI * passed));
  return to + (from - to) * left;
}

// torch counts both phases to the step on which they end: the first one to
// `start` times the number of steps less one, which need not be whole.
static double cycleRate(const LrSchedule &s, double at, int64_t steps,
                        double rate) {
  double first = rate / s.division, last = first / s.final;
  double top = s.start * double(steps) - 1, end = double(steps - 1);
  if (at <= top)
    return between(first, rate, top > 0 ? at / top : 1, s.straight);
  return between(rate, last, end > top ? (at - top) / (end - top) : 1,
                 s.straight);
}

// `at` counts the updates so far, since a skipped step does not advance the
// schedule.
double LrSchedule::at(int64_t at, int64_t steps, double rate) const {
  if (kind == file)
    return std::prev(std::upper_bound(rates.begin(), rates.end(), at,
                                      [](int64_t step, auto &each) {
                                        return step < each.first;
                                      }))
        ->second;
  if (kind == onecycle)
    return cycleRate(*this, double(at), steps, rate);
  if (at < warmup)
    return rate * double(at + 1) / double(warmup);
  double passed = double(at - warmup), length = double(steps - warmup);
  if (kind == step)
    return rate * std::pow(gamma, std::floor(passed / double(size)));
  if (kind == exponential)
    return rate * std::pow(gamma, passed);
  if (kind == constant || length <= 0)
    return rate;
  if (kind == wsd) {
    // The decay cannot begin before the warmup ends.
    double last = double(decay > 0 ? decay : std::max<int64_t>(steps / 10, 1));
    last = std::min(last, length);
    passed = std::max(passed - (length - last), 0.0);
    return between(rate, minimum, passed / last, true);
  }
  if (kind == polynomial)
    return minimum + (rate - minimum) * std::pow(1 - passed / length, power);
  return between(rate, minimum, passed / length, kind == linear);
}

} // namespace fsdpc::runtime
