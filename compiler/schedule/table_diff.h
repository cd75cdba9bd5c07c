// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tells two schedules apart by their tables: which actions stand elsewhere,
// and what that changes.
#pragma once

#include "runtime/support/status.h"

#include <string>
#include <string_view>

namespace fsdpc::schedule {

/// Says how two tables differ.
struct TableDifference {
  bool equal = true; ///< the same rows with the same actions
  /// A line per action that stands elsewhere or in one table alone, with equal
  /// blocks in one line, then the totals side by side.
  std::string text;
};

/// Compares two tables that `writeTable` wrote, edited or not. They need not be
/// of one model. The error names the table by its name and the row.
Result<TableDifference> diffTables(std::string_view a, const std::string &nameA,
                                   std::string_view b,
                                   const std::string &nameB);

} // namespace fsdpc::schedule
