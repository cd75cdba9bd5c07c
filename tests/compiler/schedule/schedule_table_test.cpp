// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tables of schedules: a table gives back the schedule that it was written
// from, equal blocks fold, and no edit gets lost.

#include "compiler/schedule/table.h"
#include "compiler/schedule/table_diff.h"
#include "compiler/schedule/table_names.h"
#include "tests/compiler/schedule/schedule_fixtures.h"

#include <gmock/gmock.h>

#include <algorithm>

namespace fsdpc::schedule {
namespace {

using testing::HasSubstr;
using testing::Not;

Schedule solved(Problem problem, Prefetch mode) {
  problem.options.prefetch = mode;
  return std::get<Solution>(solve(problem)).schedule;
}

// `training` with the names that a model has.
Problem blocks(int units) {
  Problem problem = training(units, 6, 20, 30);
  auto rename = [](std::string &label, const std::string &what) {
    label = what + label.substr(label.rfind('u') + 1) + ".flat";
  };
  for (Segment &segment : problem.segments)
    segment.label = "h." + segment.label.substr(1);
  for (size_t i = size_t(units); i < problem.segments.size(); ++i)
    problem.segments[i].backward = true;
  for (Collective &c : problem.collectives)
    rename(c.label, c.kind == CollectiveKind::Gather ? "all_gather of h."
                                                     : "reduce_scatter of h.");
  return problem;
}

std::string without(std::string text, const std::string &part) {
  size_t at = text.find(part);
  EXPECT_NE(at, text.npos) << part << " in\n" << text;
  return text.erase(at, part.size());
}

std::string with(std::string text, const std::string &from,
                 const std::string &to) {
  size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from << " in\n" << text;
  return text.replace(at, from.size(), to);
}

std::string fault(const Problem &problem, const std::string &text) {
  Result<Schedule> read = readTable(problem, text);
  return read ? "" : read.error().message;
}

// A table of repeated units has one row, whose names hold the unit's number as
// {i}.
TEST(TableNames, AreRelativeToTheUnit) {
  NumberedName unit = splitName("h.3");
  EXPECT_EQ(relativeName("h.3.flat", unit), "h.{i}.flat");
  EXPECT_EQ(relativeName("h.4.flat", unit), "h.{i+1}.flat");
  EXPECT_EQ(relativeName("h.1.flat", unit), "h.{i-2}.flat");
  EXPECT_EQ(relativeName("root.flat", unit), "root.flat");
  EXPECT_EQ(relativeName("g.3.flat", unit), "g.3.flat");
  EXPECT_EQ(relativeName("h.04.flat", unit), "h.04.flat");
  for (const char *name : {"h.3.flat", "h.12.flat", "h.0", "root.flat"})
    EXPECT_EQ(absoluteName(relativeName(name, unit), 3), name);
}

// Only {i} and {i+N} stand for a number.
TEST(TableNames, OtherBracesAreRefused) {
  for (const char *name :
       {"h.{", "h.}", "h.{j}", "h.{i", "h.{i*2}", "h.{i+}", "h.{i+x}",
        "h.{i-9}", "h.{i}{i}", "}{", "h.{}", "h.{i+9999999999999}"})
    EXPECT_EQ(absoluteName(name, 3), std::nullopt) << name;
}

// By hand: unit a and b with a wait at op 2. Figures and totals are comments.
TEST(Table, OfTwoUnits) {
  Problem problem = twoUnits();
  std::string table = writeTable(problem, solved(problem, Prefetch::Pre));
  EXPECT_THAT(table, HasSubstr("\na       forward      2  gather gather a; "
                               "gather gather b; wait gather a"));
  EXPECT_THAT(table, HasSubstr("\nb       forward      2  free gather a; "
                               "reduce reduce a; wait gather b; reduced "
                               "reduce a@2; free gather b@2  #"));
  EXPECT_THAT(table,
              HasSubstr("# step 0.055 ms: ops 0.040, exposed 0.015 and slowed "
                        "0.000 (at least 0.015 together under any schedule)"));
}

// The actions come back in their order, whatever the model looks like.
TEST(Table, GivesBackTheSchedule) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    Problem problem = randomProblem(seed);
    for (Prefetch mode : {Prefetch::None, Prefetch::Pre, Prefetch::Auto}) {
      Schedule schedule = solved(problem, mode);
      std::string table = writeTable(problem, schedule);
      Result<Schedule> read = readTable(problem, table);
      ASSERT_TRUE(read) << read.error().message << "\n" << table;
      EXPECT_EQ(read->actions, schedule.actions) << table;
      EXPECT_EQ(writeTable(problem, *read), table);
    }
  }
}

// Blocks with the same actions are one row, in either direction; the table is
// as long for 96 blocks as for 12.
TEST(Table, FoldsEqualBlocks) {
  auto linesOf = [](int units) {
    Problem problem = blocks(units);
    Schedule schedule = solved(problem, Prefetch::Pre);
    std::string table = writeTable(problem, schedule);
    EXPECT_EQ(readTable(problem, table)->actions, schedule.actions) << table;
    return std::count(table.begin(), table.end(), '\n');
  };
  EXPECT_EQ(linesOf(12), linesOf(96));
  EXPECT_LT(linesOf(96), 20);
  Problem problem = blocks(12);
  std::string table = writeTable(problem, solved(problem, Prefetch::Pre));
  EXPECT_THAT(table, HasSubstr("\nh.{1..10}  forward"));
  EXPECT_THAT(table, HasSubstr("gather h.{i+1}.flat"));
}

// An edit of a folded row is one of all its blocks. The last block has no next
// one to gather, so the row is split.
TEST(Table, EditsMoveActions) {
  Problem problem = blocks(12);
  Schedule none = solved(problem, Prefetch::None);
  std::string table = writeTable(problem, none);
  std::string row = "h.{1..11}  forward      6  free h.{i-1}.flat; gather "
                    "h.{i}.flat; wait h.{i}.flat";
  std::string edited =
      with(with(table, row,
                "h.{1..10} forward 6 free h.{i-1}.flat; wait h.{i}.flat; "
                "gather h.{i+1}.flat@3\n"
                "h.11 forward 6 free h.10.flat; wait h.11.flat"),
           "gather h.0.flat; wait h.0.flat",
           "gather h.0.flat; wait h.0.flat; gather h.1.flat@3");
  Result<Schedule> read = readTable(problem, edited);
  ASSERT_TRUE(read) << read.error().message << "\n" << edited;
  EXPECT_LT(simulate(problem, *read).totalExposedUs,
            simulate(problem, none).totalExposedUs);
}

// An illegal edit is refused by its row and the rule.
TEST(Table, IllegalEditsAreNamed) {
  Problem problem = blocks(2);
  std::string table = writeTable(problem, solved(problem, Prefetch::None));
  auto edited = [&](const std::string &from, const std::string &to) {
    return fault(problem, with(table, from, to));
  };
  EXPECT_EQ(
      edited("wait h.1.flat", "wait h.1.flat@1"),
      "row in line 3: violates rule 'wait-before-use': 'all_gather of "
      "h.1.flat' is waited for at @1 of 'h.1' forward, after its first use "
      "at @0 of 'h.1' forward");
  EXPECT_THAT(edited("gather h.1.flat; wait h.1.flat",
                     "wait h.1.flat; gather h.1.flat"),
              HasSubstr("row in line 3: violates rule 'wait-after-start'"));
  EXPECT_THAT(edited("wait h.1.flat", "wait h.1.flat; wait h.1.flat"),
              HasSubstr("stands more than the"));
  EXPECT_THAT(edited("wait h.1.flat", "await h.1.flat"),
              HasSubstr("row in line 3: 'await h.1.flat' does not begin with"));
  EXPECT_THAT(edited("wait h.1.flat", "wait h.7.flat"),
              HasSubstr("names no collective of the model"));
  EXPECT_THAT(edited("wait h.1.flat", "wait h.1.flat@6"),
              HasSubstr("has no place '@N' with N from 0 to 5"));
  EXPECT_THAT(edited("wait h.1.flat", "wait h.1.flat@-1"),
              HasSubstr("has no place '@N'"));
  EXPECT_THAT(edited("free h.0.flat", "free h.0.flat@2"),
              HasSubstr("stands after an action of a later '@N'"));
}

// What is removed from a row is missed in that row, also if there are more
// collectives of that name. A reduction may end as late as in the last row.
TEST(Table, WhatIsMissingIsMissedInItsRow) {
  Problem problem = blocks(3);
  std::string table = writeTable(problem, solved(problem, Prefetch::None));
  std::vector<std::string> lines = {""};
  for (char c : table)
    if (c == '\n')
      lines.emplace_back();
    else
      lines.back() += c;
  size_t last = 0;
  for (size_t line = 0; line < lines.size(); ++line)
    if (lines[line].find(" backward ") != std::string::npos)
      last = line;
  int removed = 0;
  for (size_t line = 0; line < lines.size(); ++line) {
    if (lines[line].starts_with('#'))
      continue;
    size_t end = std::min(lines[line].find('#'), lines[line].size());
    std::string row = lines[line].substr(0, end);
    for (const char *verb : {"gather ", "wait ", "free ", "reduced "})
      for (size_t at = row.find(verb); at != row.npos;
           at = row.find(verb, at + 1)) {
        if (at > 0 && row[at - 1] != ' ')
          continue;
        std::vector<std::string> edited = lines;
        size_t stop = std::min(row.find(';', at), row.size() - 1) + 1;
        edited[line] = row.substr(0, at) + row.substr(stop);
        std::string text;
        for (const std::string &each : edited)
          text += each + "\n";
        size_t missed = std::string(verb) == "reduced " ? last : line;
        EXPECT_THAT(fault(problem, text),
                    HasSubstr("row in line " + std::to_string(missed + 1) +
                              ": violates rule 'complete'"))
            << row << " without " << row.substr(at, stop - at);
        ++removed;
      }
  }
  EXPECT_GT(removed, 10);
}

// `table` of three blocks with other rows for the second and the third.
std::string unfolded(const std::string &table, const std::string &second,
                     const std::string &third) {
  std::string row = "h.{1..2}  forward      6  free h.{i-1}.flat; gather "
                    "h.{i}.flat; wait h.{i}.flat";
  return with(table, row,
              "h.1 forward 6 " + second + "\nh.2 forward 6 " + third);
}

// A row is named by what stands in it, not by other actions of the collective.
TEST(Table, TheMovedActionIsBlamed) {
  Problem problem = blocks(3);
  std::string table = writeTable(problem, solved(problem, Prefetch::None));
  // The gather of the second block, moved behind its use.
  std::string moved = unfolded(
      table, "free h.0.flat; wait h.1.flat",
      "gather h.1.flat; free h.1.flat; gather h.2.flat; wait h.2.flat");
  EXPECT_THAT(fault(problem, moved),
              HasSubstr("row in line 4: violates rule 'wait-after-start'"));
  // Twice: both rows are named.
  std::string twice = with(table, "gather h.0.flat; wait h.0.flat",
                           "gather h.0.flat; wait h.0.flat; gather h.1.flat");
  EXPECT_THAT(fault(problem, twice),
              HasSubstr("stands more than the 2 times of the model; the others "
                        "are in line 2, 3"));
}

// The start that exceeds the limit is blamed, whichever others are live.
TEST(Table, TheStartAboveTheLimitIsBlamed) {
  Problem problem = blocks(3);
  std::string table = writeTable(problem, solved(problem, Prefetch::None));
  problem.options.limitAllGathers = 1;
  std::string moved =
      unfolded(table, "gather h.1.flat; free h.0.flat; wait h.1.flat",
               "free h.1.flat; gather h.2.flat; wait h.2.flat");
  EXPECT_THAT(
      fault(problem, moved),
      HasSubstr("row in line 3: violates rule 'live-gathers': the start "
                "of 'all_gather of h.1.flat' at @0 of 'h.1' forward"));
}

// Rows are the model's.
TEST(Table, RowsCannotChange) {
  Problem problem = blocks(3);
  std::string table = writeTable(problem, solved(problem, Prefetch::None));
  size_t second = table.find("\nh.1 ") + 1;
  size_t third = table.find('\n', second) + 1;
  std::string row = table.substr(second, third - second);
  EXPECT_THAT(fault(problem, without(table, row)),
              HasSubstr("rows cannot be added, removed or moved"));
  EXPECT_THAT(fault(problem, with(table, row, row + row)),
              HasSubstr("rows cannot be added, removed or moved"));
  EXPECT_THAT(fault(problem, with(table, "forward      6", "forward      7")),
              HasSubstr("'h.0' forward of 7 ops stands where the model has "
                        "'h.0' forward of 6"));
  EXPECT_THAT(fault(problem, ""), HasSubstr("is missing"));
  // The table of another model.
  EXPECT_THAT(fault(blocks(4), table), Not(testing::IsEmpty()));
}

// No text is too strange to be refused.
TEST(Table, OtherTextsAreRefused) {
  Problem problem = blocks(3);
  std::string table = writeTable(problem, solved(problem, Prefetch::None));
  // Cut off before the last row.
  for (size_t size = 0; size < table.rfind("\nh.0 "); size += 7)
    EXPECT_FALSE(readTable(problem, table.substr(0, size)));
  for (const char *text :
       {"h.{0..2", "h.{0..2} forward 6", "h.{..} forward 6", "h.}{ forward 6 x",
        "h.{2..0} forward 6", "h.0 forward", "h.0 sideways 6",
        "h.{0..99999999999} forward 6", "h.{0..999999999} forward 6"})
    EXPECT_FALSE(readTable(problem, text)) << text;
}

std::string differences(const std::string &a, const std::string &b) {
  Result<TableDifference> found = diffTables(a, "a", b, "b");
  return found ? found->text : found.error().message;
}

// Equal blocks whose gathers move by one block are one line.
TEST(TableDiff, NamesWhatMoved) {
  Problem problem = blocks(6);
  std::string none = writeTable(problem, solved(problem, Prefetch::None)),
              pre = writeTable(problem, solved(problem, Prefetch::Pre));
  std::string text = differences(none, pre);
  EXPECT_THAT(text, HasSubstr("gather h.{i}.flat: h.{i} forward in A, "
                              "h.{i-1} forward in B  (i = 1..5)"));
  EXPECT_THAT(text, HasSubstr("exposed ms"));
  Result<TableDifference> same = diffTables(pre, "a", pre, "b");
  ASSERT_TRUE(same);
  EXPECT_TRUE(same->equal);
}

TEST(TableDiff, NamesRowsOfOtherModels) {
  Problem four = blocks(4), six = blocks(6);
  std::string text = differences(writeTable(four, solved(four, Prefetch::None)),
                                 writeTable(six, solved(six, Prefetch::None)));
  EXPECT_THAT(text, HasSubstr("row h.{i} forward: only in B  (i = 4..5)"));
  EXPECT_THAT(text, HasSubstr("gather h.{i}.flat: nowhere in A, h.{i} forward "
                              "in B  (i = 4..5)"));
}

TEST(TableDiff, RefusesWhatIsNoTable) {
  EXPECT_EQ(differences("", ""), "'a' has no row of a schedule; give a file of "
                                 "--schedule-table, or a dump");
  EXPECT_THAT(differences("h.0 sideways 5 free x", ""),
              HasSubstr("'a' line 1"));
  EXPECT_THAT(differences("h.{0..999999999} forward 5\n", ""),
              HasSubstr("more than 1000000 rows"));
}

} // namespace
} // namespace fsdpc::schedule
