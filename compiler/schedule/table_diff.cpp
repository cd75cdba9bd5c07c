// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See table_diff.h. Both tables are unfolded; an action is known by its verb,
// its collective and how often these have occurred. Differences that are the
// same for several blocks, but for the number in their names, are one line.

#include "compiler/schedule/table_diff.h"

#include "compiler/schedule/table_names.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <optional>
#include <vector>

namespace fsdpc::schedule {

namespace {

/// The place of an action: a row, and its op.
struct Place {
  std::string unit, pass;
  int row = 0, offset = 0;

  bool operator==(const Place &other) const {
    return unit == other.unit && pass == other.pass && offset == other.offset;
  }
};

struct Unfolded {
  /// Per segment: unit, pass and the number of ops.
  std::vector<std::pair<std::string, int>> segments;
  /// The key is verb and name, and the number of the occurrence.
  std::map<std::pair<std::string, int>, Place> actions;
  /// The lines of the totals: those that begin with '#' after the last row.
  std::vector<std::string> totals;
};

[[gnu::format(printf, 1, 2)]] std::string print(const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

/// A range of a folded row may be anything, as nothing here knows the model.
constexpr int mostRows = 1'000'000;

/// Reads one table.
class Unfolder {
public:
  explicit Unfolder(const std::string &name) : name(name) {}

  Result<Unfolded> read(std::string_view text) {
    while (!text.empty()) {
      ++lineNumber;
      FSDPC_TRY(readLine(takeUntil(text, '\n')));
    }
    if (table.segments.empty())
      return inputError("'" + name +
                        "' has no row of a schedule; give a file of "
                        "--schedule-table, or a dump");
    return std::move(table);
  }

private:
  Error error(const std::string &message) const {
    return inputError(concat("'", name, "' line ", lineNumber, ": ", message));
  }

  Status readLine(std::string_view line) {
    if (!line.empty() && line[0] == '#') {
      if (!table.segments.empty())
        table.totals.emplace_back(line);
      return {};
    }
    line = trim(line.substr(0, line.find('#')));
    if (line.empty())
      return {};
    std::string unit(takeWord(line)), pass(takeWord(line));
    std::optional<int> ops = numberOf(takeWord(line));
    std::optional<UnitRange> range = rangeOf(unit);
    if ((pass != "forward" && pass != "backward") || !ops || !range)
      return error("expected a unit, 'forward' or 'backward', and the number "
                   "of ops");
    int step = range->first <= range->last ? 1 : -1;
    for (int number = range->first;; number += step) {
      FSDPC_TRY(readRow(range->unit(number), pass, *ops, line, number));
      if (number == range->last)
        return {};
    }
  }

  Status readRow(const std::string &unit, const std::string &pass, int ops,
                 std::string_view actions, int number) {
    int row = int(table.segments.size());
    if (row == mostRows)
      return error(concat("the table has more than ", mostRows, " rows"));
    table.segments.emplace_back(unit + " " + pass, ops);
    while (!trim(actions).empty()) {
      std::string_view text = takeUntil(actions, ';');
      std::string verb(takeWord(text));
      std::optional<std::string> collective =
          absoluteName(takeUntil(text, '@'), number);
      std::optional<int> offset =
          text.empty() ? std::optional<int>(0) : numberOf(trim(text));
      if (!collective || !offset)
        return error("an action '" + verb + "' names no collective and place");
      std::string key = verb + " " + *collective;
      table.actions[{key, occurrences[key]++}] = {unit, pass, row, *offset};
    }
    return {};
  }

  std::string name;
  int lineNumber = 0;
  Unfolded table;
  std::map<std::string, int> occurrences;
};

std::string placeText(const Place &place, const NumberedName &relativeTo) {
  return relativeName(place.unit, relativeTo) + " " + place.pass +
         (place.offset ? concat(" @", place.offset) : "");
}

/// "1..5, 8": ascending numbers with runs joined.
std::string numbersText(std::vector<int> numbers) {
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t j = i;
    while (j + 1 < numbers.size() && numbers[j + 1] == numbers[j] + 1)
      ++j;
    text += concat(text.empty() ? "" : ", ", numbers[i],
                   j > i ? concat("..", numbers[j]) : "");
    i = j + 1;
  }
  return text;
}

/// Lines that are equal but for a number, in the order of their first ones.
class Folded {
public:
  /// Adds the line that `write` makes for names relative to `name`'s number.
  template <typename Write> void add(const std::string &name, Write write) {
    NumberedName parts = splitName(name);
    std::string line = write(parts);
    auto [found, isNew] = places.try_emplace(line, lines.size());
    if (isNew)
      lines.push_back({line, {}});
    if (parts.number)
      lines[found->second].second.push_back(*parts.number);
  }

  std::string text() const {
    std::string text;
    for (const auto &[line, numbers] : lines) {
      bool relative = line.find("{i") != line.npos;
      text += line + (relative ? "  (i = " + numbersText(numbers) + ")" : "") +
              "\n";
    }
    return text;
  }

private:
  std::vector<std::pair<std::string, std::vector<int>>> lines;
  std::map<std::string, size_t> places;
};

/// The differences of the rows themselves, by what the models have.
void diffSegments(const Unfolded &a, const Unfolded &b, Folded &lines) {
  std::map<std::string, std::vector<int>> ops[2];
  for (const auto &[segment, count] : a.segments)
    ops[0][segment].push_back(count);
  for (const auto &[segment, count] : b.segments)
    ops[1][segment].push_back(count);
  auto write = [&](const std::string &segment, const std::string &what) {
    lines.add(segment, [&](const NumberedName &parts) {
      return "row " + relativeName(segment, parts) + ": " + what;
    });
  };
  for (const auto &[segment, count] : a.segments) {
    auto other = ops[1].find(segment);
    if (other == ops[1].end())
      write(segment, "only in A");
    else if (other->second != ops[0][segment])
      write(segment, concat(ops[0][segment].front(), " ops in A, ",
                            other->second.front(), " in B"));
  }
  for (const auto &[segment, count] : b.segments)
    if (!ops[0].count(segment))
      write(segment, "only in B");
}

void diffActions(const Unfolded &a, const Unfolded &b, Folded &lines) {
  // In the order of A's rows, then what B has alone.
  auto inOrder = [](const Unfolded &table) {
    std::vector<std::pair<std::string, int>> keys;
    for (const auto &[key, place] : table.actions)
      keys.push_back(key);
    std::stable_sort(keys.begin(), keys.end(), [&](auto &x, auto &y) {
      const Place &p = table.actions.at(x), &q = table.actions.at(y);
      return std::pair(p.row, p.offset) < std::pair(q.row, q.offset);
    });
    return keys;
  };
  auto nameOf = [](const std::string &key) {
    return key.substr(key.find(' ') + 1);
  };
  auto actionText = [&](const std::string &key, const NumberedName &parts) {
    return key.substr(0, key.find(' ') + 1) + relativeName(nameOf(key), parts);
  };
  for (const auto &key : inOrder(a)) {
    const Place &from = a.actions.at(key);
    auto other = b.actions.find(key);
    if (other != b.actions.end() && other->second == from)
      continue;
    lines.add(nameOf(key.first), [&](const NumberedName &parts) {
      std::string text = actionText(key.first, parts) + ": ";
      if (other == b.actions.end())
        return text + placeText(from, parts) + " in A, nowhere in B";
      return text + placeText(from, parts) + " in A, " +
             placeText(other->second, parts) + " in B";
    });
  }
  for (const auto &key : inOrder(b))
    if (!a.actions.count(key))
      lines.add(nameOf(key.first), [&](const NumberedName &parts) {
        return actionText(key.first, parts) + ": nowhere in A, " +
               placeText(b.actions.at(key), parts) + " in B";
      });
}

/// A figure of the totals, by the word that stands before it in the line that
/// begins with `line`.
std::optional<double> figureOf(const Unfolded &table, const std::string &line,
                               const std::string &before) {
  for (const std::string &total : table.totals) {
    if (total.compare(0, line.size(), line) != 0)
      continue;
    size_t at = total.find(before);
    double value = 0;
    if (at != total.npos &&
        std::sscanf(total.c_str() + at + before.size(), "%lf", &value) == 1)
      return value;
  }
  return std::nullopt;
}

std::string totalsText(const Unfolded &a, const Unfolded &b) {
  struct Figure {
    const char *name, *line, *before;
  };
  static constexpr Figure figures[] = {
      {"step ms", "# step", "step "},
      {"ops ms", "# step", "ops "},
      {"exposed ms", "# step", "exposed "},
      {"slowed ms", "# step", "slowed "},
      {"live peak MiB", "# live peak", "peak "},
  };
  std::string text;
  for (const Figure &figure : figures) {
    auto x = figureOf(a, figure.line, figure.before);
    auto y = figureOf(b, figure.line, figure.before);
    if (x && y)
      text +=
          print("%-14s %14.3f %14.3f %+14.3f\n", figure.name, *x, *y, *y - *x);
  }
  if (text.empty())
    return text;
  return print("%-14s %14s %14s %14s\n", "", "A", "B", "B - A") + text;
}

} // namespace

Result<TableDifference> diffTables(std::string_view a, const std::string &nameA,
                                   std::string_view b,
                                   const std::string &nameB) {
  Result<Unfolded> first = Unfolder(nameA).read(a);
  if (!first)
    return first.error();
  Result<Unfolded> second = Unfolder(nameB).read(b);
  if (!second)
    return second.error();
  Folded lines;
  diffSegments(*first, *second, lines);
  diffActions(*first, *second, lines);
  TableDifference difference;
  difference.text = lines.text();
  difference.equal = difference.text.empty();
  difference.text += totalsText(*first, *second);
  return difference;
}

} // namespace fsdpc::schedule
