// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads tables of schedules. An edit must not get lost: every word of a row is
// understood or refused, and the rows must be the problem's own. If the model
// of problem.h refuses an action, the error names its row.

#include "compiler/schedule/table.h"
#include "compiler/schedule/table_names.h"

#include <algorithm>
#include <map>

namespace fsdpc::schedule {

namespace {

std::string quoted(std::string_view text) {
  return "'" + std::string(text.substr(0, 80)) + "'";
}

class Reader {
public:
  Reader(const Problem &problem)
      : problem(problem), rows(tableRows(problem)),
        seen(problem.collectives.size()), lines(problem.collectives.size()) {
    for (size_t i = 0; i < problem.collectives.size(); ++i)
      ids[tableName(problem.collectives[i])].push_back(int(i));
  }

  Result<Schedule> read(std::string_view text);

private:
  Status readLine(std::string_view line);
  Status readRow(const std::string &unit, bool backward, int ops,
                 std::string_view actions, int number);
  Status readAction(std::string_view text, const TableRow &row, int number);
  Error error(const std::string &message) const {
    return inputError("row in line " + std::to_string(lineNumber) + ": " +
                      message);
  }

  const Problem &problem;
  std::vector<TableRow> rows;
  size_t nextRow = 0;
  int lineNumber = 0;
  /// The collectives of a name, in their order.
  std::map<std::string, std::vector<int>, std::less<>> ids;
  /// Per collective: how often each kind of action stands in the table, and
  /// the line of the last one.
  struct Counts {
    int of[3] = {0, 0, 0};
  };
  std::vector<Counts> seen;
  std::vector<Counts> lines;
  Schedule schedule;
};

// An action of a name belongs to the first collective of that name that has
// none of its kind yet: their order in the table is that of the model.
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
    return error(quoted(whole) + " has no place '@N' with N from 0 to " +
                 std::to_string(row.end == problem.numOps() ? ops : ops - 1));
  std::optional<std::string> name = absoluteName(nameText, number);
  auto found = name ? ids.find(*name) : ids.end();
  if (found == ids.end())
    return error(quoted(whole) + " names no collective of the model");
  CollectiveKind wanted = verb == "reduce" || verb == "reduced"
                              ? CollectiveKind::Reduce
                              : CollectiveKind::Gather;
  int most = 0;
  for (int id : found->second) {
    if (problem.collectives[id].kind != wanted)
      continue;
    ++most;
    int &count = seen[id].of[int(kind)];
    if (count > 0)
      continue;
    ++count;
    lines[id].of[int(kind)] = lineNumber;
    int position = row.begin + *offset;
    if (!schedule.actions.empty() &&
        schedule.actions.back().position > position)
      return error(quoted(whole) + " stands after an action of a later '@N'; "
                                   "list them in order");
    schedule.actions.push_back({position, kind, id});
    return {};
  }
  return error(quoted(whole) + " stands more than the " + std::to_string(most) +
               " times of the model");
}

Status Reader::readRow(const std::string &unit, bool backward, int ops,
                       std::string_view actions, int number) {
  if (nextRow == rows.size())
    return error("the model has only " + std::to_string(rows.size()) +
                 " segments; rows cannot be added");
  const TableRow &row = rows[nextRow++];
  if (row.unit != unit || row.backward != backward ||
      row.end - row.begin != ops)
    return error("unit " + quoted(unit) +
                 (backward ? " backward" : " forward") + " of " +
                 std::to_string(ops) +
                 " ops stands where the model "
                 "has " +
                 quoted(row.unit) + (row.backward ? " backward" : " forward") +
                 " of " + std::to_string(row.end - row.begin) +
                 "; rows cannot be added, removed or moved");
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

// The line of the action that a violated rule is about.
ActionKind actionOf(const std::string &rule) {
  if (rule == "wait-before-use" || rule == "wait-after-start")
    return ActionKind::Wait;
  return rule == "free-after-use" ? ActionKind::Free : ActionKind::Start;
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
  for (const Violation &violation : verifyPlaces(problem, schedule)) {
    std::string where;
    if (!violation.collectives.empty()) {
      const Counts &line = lines[violation.collectives.back()];
      int number = line.of[int(actionOf(violation.rule))];
      // An action that is missing has no row: name the last row of the same
      // collective.
      if (number == 0)
        number = *std::max_element(std::begin(line.of), std::end(line.of));
      if (number > 0)
        where = "row in line " + std::to_string(number) + ": ";
    }
    return inputError(where + "violates rule '" + violation.rule +
                      "': " + violation.message);
  }
  return std::move(schedule);
}

} // namespace

Result<Schedule> readTable(const Problem &problem, std::string_view text) {
  return Reader(problem).read(text);
}

} // namespace fsdpc::schedule
