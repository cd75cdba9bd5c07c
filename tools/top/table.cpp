// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of `fsdpc top`. Columns are as wide as their widest entry. Times
// come from the last steps and not from the start, so that the slow first step
// of a run does not count.
#include "runtime/support/concat.h"
#include "runtime/support/spelling.h"
#include "tools/top/top.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace fsdpc::top {
namespace {

// An unknown number is "-". `format` takes one double.
std::string number(const char *format, double value) {
  if (std::isnan(value))
    return "-";
  char text[48];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

// Milliseconds per step: the median of the last 20, or NaN.
double stepTime(const RunLog &log) {
  std::vector<double> times;
  const Curve &curve = log.curve("step_ms");
  for (auto at = curve.rbegin(); at != curve.rend() && times.size() < 20; ++at)
    times.push_back(at->second);
  if (times.empty())
    return std::nan("");
  std::nth_element(times.begin(), times.begin() + long(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

// A run counts as quiet after ten steps without a line, and at least a minute,
// since only the run itself knows whether it still lives.
std::string stateOf(const RunLog &log, int64_t done, double step, double now) {
  if (done >= log.steps())
    return "done";
  double silent = now - log.changed();
  double patience = std::max(60., std::isnan(step) ? 0. : step / 100);
  return silent > patience ? "quiet " + runtime::durationText(silent)
                           : "running";
}

// One line of the table, in the order of the heading in tableOf().
std::vector<std::string> rowOf(const RunLog &log, double now) {
  using runtime::bytesText, runtime::countText, runtime::durationText;
  int64_t done = log.done();
  double step = stepTime(log), resident = log.newest("resident_bytes");
  double rate = log.newest(log.rateKey());
  std::string comm = number("%.0f %%", 100 * log.newest("exposed_comm_ms") /
                                           log.newest("step_ms"));
  return {runtime::printable(log.name()),
          concat(done, "/", log.steps()),
          number("%.4f", log.newest("loss")),
          number("%.4f", log.newest("eval_loss")),
          number("%.3g", log.newest("grad_norm")),
          number("%.3g", log.newest("lr")),
          number("%.0f", step),
          std::isnan(rate) ? "-" : countText(rate),
          comm,
          std::isnan(resident) ? "-" : bytesText(int64_t(resident)),
          std::isnan(step)
              ? "-"
              : durationText(step / 1000 * double(log.steps() - done)),
          stateOf(log, done, step, now)};
}

} // namespace

std::string tableOf(const std::vector<RunLog> &logs, double now) {
  std::vector<std::vector<std::string>> rows = {
      {"LOG", "STEP", "LOSS", "EVAL", "NORM", "LR", "MS/STEP", "ITEMS/S",
       "COMM", "RESIDENT", "LEFT", "STATE"}};
  for (const RunLog &log : logs)
    rows.push_back(rowOf(log, now));
  std::vector<size_t> widths(rows[0].size());
  for (const auto &row : rows)
    for (size_t i = 0; i < row.size(); ++i)
      widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto &row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      std::string space(widths[i] - row[i].size(), ' ');
      bool last = i + 1 == row.size();
      // Names to the left, numbers to the right.
      text += i == 0 || last ? row[i] + (last ? "" : space) : space + row[i];
      text += last ? "\n" : "  ";
    }
  }
  return text;
}

} // namespace fsdpc::top
