// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes schedules as tables: the rows with their actions and figures, the
// folding of equal ones, and the totals. Names in rows are kept relative to the
// row's unit, by which equal blocks are found.

#include "compiler/schedule/bound.h"
#include "compiler/schedule/live_bytes.h"
#include "compiler/schedule/table.h"
#include "compiler/schedule/table_names.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>

namespace fsdpc::schedule {

namespace {

constexpr double mebibyte = 1 << 20;

/// The events of a row, and their cost.
struct Row {
  TableRow place;
  /// Names are relative to the unit's number.
  std::string unit, actions;
  double costUs = 0, exposedUs = 0;
  std::optional<double> slackUs; ///< least time between an end and its wait
  int64_t liveBytes = 0;
  int first = 0, last = 0, count = 1; ///< the numbers of the units in it

  bool equals(const Row &other) const {
    return unit == other.unit && actions == other.actions &&
           place.backward == other.place.backward &&
           place.end - place.begin == other.place.end - other.place.begin;
  }
};

[[gnu::format(printf, 1, 2)]] std::string print(const char *format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

const char *verbOf(const Collective &c, ActionKind kind) {
  bool gathers = c.kind == CollectiveKind::Gather;
  switch (kind) {
  case ActionKind::Start:
    return gathers ? "gather" : "reduce";
  case ActionKind::Wait:
    return gathers ? "wait" : "reduced";
  case ActionKind::Free:
    break;
  }
  return "free";
}

std::vector<Row> rowsOf(const Problem &problem, const Schedule &schedule,
                        const Timeline &timeline) {
  LiveBytes live = liveBytesByKind(problem, schedule);
  std::vector<Row> rows;
  size_t next = 0;
  int n = problem.numOps();
  for (const TableRow &place : tableRows(problem)) {
    Row row;
    row.place = place;
    NumberedName unit = splitName(place.unit);
    row.unit = relativeName(place.unit, unit);
    row.first = row.last = unit.number.value_or(0);
    for (int p = place.begin; p < place.end; ++p) {
      row.costUs += problem.ops[p].durationUs;
      row.liveBytes = std::max(row.liveBytes, live.at(p));
    }
    for (; next < schedule.actions.size() &&
           (schedule.actions[next].position < place.end || place.end == n);
         ++next) {
      const Action &action = schedule.actions[next];
      const Collective &c = problem.collectives[action.collective];
      int offset = action.position - place.begin;
      row.actions += (row.actions.empty() ? "" : "; ") +
                     std::string(verbOf(c, action.kind)) + " " +
                     relativeName(tableName(c), unit) +
                     (offset ? concat("@", offset) : "");
      if (action.kind != ActionKind::Wait)
        continue;
      row.exposedUs += timeline.exposedUs[action.collective];
      double slack = std::max(0.0, timeline.reachUs[action.position] -
                                       timeline.finishUs[action.collective]);
      row.slackUs = std::min(row.slackUs.value_or(slack), slack);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Joins equal rows whose units are numbered one after the other.
std::vector<Row> fold(const std::vector<Row> &rows) {
  std::vector<Row> folded;
  for (const Row &row : rows) {
    Row *open = folded.empty() ? nullptr : &folded.back();
    int step = open ? row.first - open->last : 0;
    bool follows =
        open && open->equals(row) && (step == 1 || step == -1) &&
        (open->count == 1 || (step > 0) == (open->last > open->first));
    if (!follows) {
      folded.push_back(row);
      continue;
    }
    open->last = row.last;
    ++open->count;
    open->costUs = std::max(open->costUs, row.costUs);
    open->exposedUs += row.exposedUs;
    open->liveBytes = std::max(open->liveBytes, row.liveBytes);
    if (row.slackUs)
      open->slackUs =
          std::min(open->slackUs.value_or(*row.slackUs), *row.slackUs);
  }
  return folded;
}

/// The unit of a row: its name, or that of a range.
std::string unitText(const Row &row) {
  if (row.count == 1)
    return row.place.unit;
  std::string text = row.unit;
  std::string range = concat(row.first, "..", row.last);
  return text.replace(text.find('{'), 3, "{" + range + "}");
}

/// A row that stands alone has the names as they are.
std::string actionsText(const Row &row) {
  if (row.count > 1)
    return row.actions;
  std::string text;
  for (size_t at = 0; at < row.actions.size();) {
    size_t end = std::min(row.actions.find(';', at), row.actions.size());
    std::string action = row.actions.substr(at, end - at);
    text += absoluteName(action, row.first).value_or(action);
    at = end;
    if (at < row.actions.size())
      text += row.actions[at++];
  }
  return text;
}

std::string totals(const Problem &problem, const Schedule &schedule,
                   const Timeline &timeline) {
  double ops = 0;
  for (const Op &op : problem.ops)
    ops += op.durationUs;
  std::string text =
      print("# step %.3f ms: ops %.3f, exposed %.3f and slowed %.3f (at least "
            "%.3f together under any schedule)\n",
            timeline.stepUs / 1e3, ops / 1e3, timeline.totalExposedUs / 1e3,
            timeline.slowedUs / 1e3, leastLostUs(problem) / 1e3);
  for (CollectiveKind kind : {CollectiveKind::Gather, CollectiveKind::Reduce}) {
    double us = 0;
    int count = 0;
    for (const Collective &c : problem.collectives)
      if (c.kind == kind)
        us += c.durationUs, ++count;
    bool gathers = kind == CollectiveKind::Gather;
    text += print("# %d %s: %.3f ms\n", count,
                  gathers ? "all-gathers" : "reduce-scatters", us / 1e3);
  }
  std::vector<Interval> intervals = liveIntervals(problem, schedule);
  int64_t arena = livePeak(intervals).bytes;
  text += print("# live peak %.1f MiB: %.1f in the arena, %.1f outside; "
                "largest in the arena:",
                double(arena + problem.baseBytes) / mebibyte,
                double(arena) / mebibyte, double(problem.baseBytes) / mebibyte);
  for (const Contributor &c : largestContributors(intervals))
    text += " '" + c.label + "' " + print("%.1f", double(c.bytes) / mebibyte);
  return text + "\n";
}

} // namespace

std::vector<TableRow> tableRows(const Problem &problem) {
  std::vector<TableRow> rows;
  for (const Segment &segment : problem.segments) {
    int begin = rows.empty() ? 0 : segment.begin;
    if (!rows.empty())
      rows.back().end = begin;
    rows.push_back({segment.label, segment.backward, begin, 0});
  }
  if (rows.empty())
    rows.push_back({"-", false, 0, 0});
  rows.back().end = problem.numOps();
  return rows;
}

std::string tableName(const Collective &c) {
  // "all_gather of a, b"
  size_t of = c.label.find(" of ");
  std::string name = of == c.label.npos ? c.label : c.label.substr(of + 4);
  for (size_t at; (at = name.find(", ")) != name.npos;)
    name.replace(at, 2, "+");
  return name;
}

std::string writeTable(const Problem &problem, const Schedule &schedule) {
  Timeline timeline = simulate(problem, schedule);
  std::vector<Row> rows = fold(rowsOf(problem, schedule, timeline));
  size_t unitWidth = 6, actionWidth = 7;
  for (const Row &row : rows) {
    unitWidth = std::max(unitWidth, unitText(row).size());
    actionWidth = std::max(actionWidth, actionsText(row).size());
  }
  // Long lists of actions do not push the figures of all rows out of sight.
  actionWidth = std::min<size_t>(actionWidth, 72);
  auto line = [&](const std::string &unit, const char *pass,
                  const std::string &ops, const std::string &actions,
                  const std::string &figures) {
    std::string text = unit + std::string(unitWidth - unit.size() + 2, ' ');
    text += print("%-8s %5s  ", pass, ops.c_str()) + actions;
    if (actions.size() < actionWidth)
      text += std::string(actionWidth - actions.size(), ' ');
    return text + "  # " + figures + "\n";
  };
  std::string text = line("# unit", "pass", "ops", "actions",
                          "cost ms  exposed ms  slack ms  live MiB");
  for (const Row &row : rows) {
    std::string cost = print("%9.3f", row.costUs / 1e3);
    std::string slack =
        row.slackUs ? print("%8.3f", *row.slackUs / 1e3) : "       -";
    std::string times = row.count > 1 ? concat(" x ", row.count) : "";
    text +=
        line(unitText(row), row.place.backward ? "backward" : "forward",
             std::to_string(row.place.end - row.place.begin), actionsText(row),
             cost + print("  %8.3f  ", row.exposedUs / 1e3) + slack +
                 print("  %8.1f", double(row.liveBytes) / mebibyte) + times);
  }
  return text + totals(problem, schedule, timeline);
}

} // namespace fsdpc::schedule
