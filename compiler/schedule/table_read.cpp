// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads tables of schedules. An edit must not get lost: every word of a row is
// understood or refused, and the rows must be the problem's own. If the model
// of problem.h refuses an action, the error names its row.

#include "compiler/schedule/table.h"
#include "compiler/schedule/table_names.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <limits>
#include <map>

namespace fsdpc::schedule {

namespace {

std::string quoted(std::string_view text) {
  return "'" + std::string(text.substr(0, 80)) + "'";
}

class Reader {
public:
  Reader(const Problem &problem) : problem(problem), rows(tableRows(problem)) {
    for (size_t i = 0; i < problem.collectives.size(); ++i)
      ids[tableName(problem.collectives[i])].push_back(int(i));
  }

  Result<Schedule> read(std::string_view text);

private:
  Status readLine(std::string_view line);
  Status readRow(const std::string &unit, bool backward, int ops,
                 std::string_view actions, int number);
  Status readAction(std::string_view text, const TableRow &row, int number);
  void assign();
  size_t rowAt(int position) const;
  Error errorIn(int line, const std::string &message) const {
    return inputError(concat("row in line ", line, ": ", message));
  }
  Error error(const std::string &message) const {
    return errorIn(lineNumber, message);
  }

  const Problem &problem;
  std::vector<TableRow> rows;
  size_t nextRow = 0;
  int lineNumber = 0;
  /// The collectives of a name, in their order.
  std::map<std::string, std::vector<int>, std::less<>> ids;
  /// The line of each row that has been read.
  std::vector<int> rowLines;
  /// The actions of one verb on one name, and the collectives that they may be
  /// of: both in their order.
  struct Group {
    std::vector<int> actions, collectives;
  };
  std::map<std::pair<std::string, std::string>, Group> groups;
  Schedule schedule;
};

// Notes the action. Which collective of that name it is of shows once all rows
// have been read.
Status Reader::readAction(std::string_view text, const TableRow &row,
                          int number) {
  std::string whole(text);
  std::string_view verb = takeWord(text), offsetText = text;
  std::string_view nameText = takeUntil(offsetText, '@');
  bool hasOffset = text.find('@') != text.npos;
  std::optional<int> offset =
      hasOffset ? numberOf(trim(offsetText)) : std::optional<int>(0);
  ActionKind kind = verb == "gather" || verb == "reduce" ? ActionKind::Start
                    : verb == "free"                     ? ActionKind::Free
                                                         : ActionKind::Wait;
  if (kind == ActionKind::Wait && verb != "wait" && verb != "reduced")
    return error(quoted(whole) + " does not begin with 'gather', 'wait', "
                                 "'free', 'reduce' or 'reduced'");
  int ops = row.end - row.begin;
  if (!offset || *offset > ops ||
      (*offset == ops && row.end != problem.numOps()))
    return error(concat(quoted(whole), " has no place '@N' with N from 0 to ",
                        row.end == problem.numOps() ? ops : ops - 1));
  std::optional<std::string> name = absoluteName(nameText, number);
  auto found = name ? ids.find(*name) : ids.end();
  if (found == ids.end())
    return error(quoted(whole) + " names no collective of the model");
  CollectiveKind wanted = verb == "reduce" || verb == "reduced"
                              ? CollectiveKind::Reduce
                              : CollectiveKind::Gather;
  Group &group = groups[{std::string(verb), *name}];
  if (group.collectives.empty())
    for (int id : found->second)
      if (problem.collectives[id].kind == wanted)
        group.collectives.push_back(id);
  if (size_t most = group.collectives.size(); group.actions.size() == most) {
    std::string others;
    for (int action : group.actions)
      others += concat(others.empty() ? "" : ", ",
                       rowLines[rowAt(schedule.actions[action].position)]);
    return error(concat(quoted(whole), " stands more than the ", most,
                        " times of the model",
                        most ? "; the others are in line " + others : ""));
  }
  int position = row.begin + *offset;
  if (!schedule.actions.empty() && schedule.actions.back().position > position)
    return error(quoted(whole) + " stands after an action of a later '@N'; "
                                 "list them in order");
  group.actions.push_back(int(schedule.actions.size()));
  schedule.actions.push_back({position, kind, -1});
  return {};
}

// Returns how far the action is from where it has to stand at the latest (a
// free: at the earliest), or more than any distance if it may not stand there.
int64_t distanceOf(const Action &action, const Collective &c) {
  bool frees = action.kind == ActionKind::Free;
  int64_t wanted = frees ? c.lastUse.value_or(0) + 1 : c.latest;
  int64_t distance =
      frees ? action.position - wanted : wanted - action.position;
  bool isLegal = distance >= 0 && (frees || action.position >= c.earliest);
  return isLegal ? distance : int64_t(1) << 32;
}

// Gives each action its collective. If all are there, their order decides.
// Otherwise those collectives go without whose absence leaves the others
// nearest to where they belong, so that the error is about what was removed.
void Reader::assign() {
  for (auto &[name, group] : groups) {
    size_t n = group.actions.size(), m = group.collectives.size();
    // least[i][j]: the least distance of the first i actions, all of which are
    // of the first j collectives.
    constexpr int64_t never = std::numeric_limits<int64_t>::max() / 2;
    std::vector<std::vector<int64_t>> least(n + 1,
                                            std::vector<int64_t>(m + 1, never));
    std::fill(least[0].begin(), least[0].end(), 0);
    auto taken = [&](size_t i, size_t j) {
      return least[i - 1][j - 1] +
             distanceOf(schedule.actions[group.actions[i - 1]],
                        problem.collectives[group.collectives[j - 1]]);
    };
    for (size_t i = 1; i <= n; ++i)
      for (size_t j = i; j <= m; ++j)
        least[i][j] = std::min(least[i][j - 1], taken(i, j));
    for (size_t i = n, j = m; i > 0; --j)
      if (least[i][j] == taken(i, j)) {
        schedule.actions[group.actions[i - 1]].collective =
            group.collectives[j - 1];
        --i;
      }
  }
}

/// Returns the row that an action at the position stands in.
size_t Reader::rowAt(int position) const {
  size_t row = 0;
  while (row + 1 < rows.size() && rows[row + 1].begin <= position)
    ++row;
  return row;
}

Status Reader::readRow(const std::string &unit, bool backward, int ops,
                       std::string_view actions, int number) {
  if (nextRow == rows.size())
    return error(concat("the model has only ", rows.size(),
                        " segments; rows cannot be added"));
  const TableRow &row = rows[nextRow++];
  rowLines.push_back(lineNumber);
  if (row.unit != unit || row.backward != backward ||
      row.end - row.begin != ops)
    return error(concat(
        "unit ", quoted(unit), backward ? " backward" : " forward", " of ", ops,
        " ops stands where the model "
        "has ",
        quoted(row.unit), row.backward ? " backward" : " forward", " of ",
        row.end - row.begin, "; rows cannot be added, removed or moved"));
  while (!trim(actions).empty())
    FSDPC_TRY(readAction(takeUntil(actions, ';'), row, number));
  return {};
}

// A row, or a fold of rows "h.{1..10}".
Status Reader::readLine(std::string_view line) {
  line = trim(line.substr(0, line.find('#')));
  if (line.empty())
    return {};
  std::string unit(takeWord(line));
  std::string_view pass = takeWord(line);
  std::optional<int> ops = numberOf(takeWord(line));
  if ((pass != "forward" && pass != "backward") || !ops)
    return error("expected a unit, 'forward' or 'backward', and the number of "
                 "ops");
  bool backward = pass == "backward";
  std::optional<UnitRange> range = rangeOf(unit);
  if (!range)
    return error(quoted(unit) + " is not of the form 'NAME{FIRST..LAST}'");
  int step = range->first <= range->last ? 1 : -1;
  for (int number = range->first;; number += step) {
    FSDPC_TRY(readRow(range->unit(number), backward, *ops, line, number));
    if (number == range->last)
      return {};
  }
}

Result<Schedule> Reader::read(std::string_view text) {
  while (!text.empty()) {
    ++lineNumber;
    size_t end = std::min(text.find('\n'), text.size());
    FSDPC_TRY(readLine(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (nextRow < rows.size())
    return inputError("the row of unit " + quoted(rows[nextRow].unit) +
                      (rows[nextRow].backward ? " backward" : " forward") +
                      " is missing; rows cannot be removed");
  assign();
  auto place = [&](int position) {
    const TableRow &row = rows[rowAt(position)];
    return concat("@", position - row.begin, " of ", quoted(row.unit),
                  row.backward ? " backward" : " forward");
  };
  for (const Violation &violation : verifyPlaces(problem, schedule, place)) {
    std::string broken =
        "violates rule '" + violation.rule + "': " + violation.message;
    return violation.position
               ? errorIn(rowLines[rowAt(*violation.position)], broken)
               : inputError(broken);
  }
  return std::move(schedule);
}

} // namespace

Result<Schedule> readTable(const Problem &problem, std::string_view text) {
  return Reader(problem).read(text);
}

} // namespace fsdpc::schedule
