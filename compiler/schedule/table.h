// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A schedule as a table that fits a screen: one row per segment, with what
// starts, is waited for and freed there. Equal blocks are folded into one row.
// A table can be edited and read back.
//
//   unit        pass      ops  actions                                # figures
//   root        forward    12  gather root.flat; wait root.flat; …    # …
//   h.{1..10}   forward    45  free h.{i-1}.flat; gather h.{i+1}.flat@7; …
//
// An action stands before op @N of its segment, @0 if there is no @. In a
// folded row, i runs over the range of the unit. The figures behind '#' are
// computed and not read. Rows are the model's segments: they cannot be added,
// removed or moved, but a folded row may be split, and equal rows may be
// joined.
#pragma once

#include "compiler/schedule/problem.h"
#include "runtime/support/status.h"

#include <string>
#include <string_view>
#include <vector>

namespace fsdpc::schedule {

/// The positions of a row, [begin, end): those of a segment up to the next one.
/// Actions at the end of the function belong to the last row.
struct TableRow {
  std::string unit;
  bool backward = false;
  int begin = 0, end = 0;
};

/// Returns the rows of the problem's table, before any are folded. Ops before
/// the first segment belong to it.
std::vector<TableRow> tableRows(const Problem &problem);

/// Returns the table of a complete schedule, with the figures of its rows, and
/// its totals.
std::string writeTable(const Problem &problem, const Schedule &schedule);

/// Reads a table that belongs to the problem. The error names the row, by its
/// line, and what is wrong with it, or the rule of the model (problem.h) that
/// the schedule breaks there.
Result<Schedule> readTable(const Problem &problem, std::string_view text);

/// Returns the name that a table has for a collective: its layouts. Several
/// collectives may have one name; they are told apart by their order.
std::string tableName(const Collective &c);

} // namespace fsdpc::schedule
