// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Properties that all rows of the table of strategies have, so that a new row
// cannot lack what other code looks up.
#include "compiler/options/OptionTable.h"
#include "compiler/options/StrategyTable.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <gtest/gtest.h>

using namespace llvm;
using namespace fsdpc::fsdp;

namespace {

// A row keeps kinds of memory that exist. Whoever updates all of a parameter
// has all of it.
TEST(StrategyTable, KeepsWhatExists) {
  for (const StrategyInfo &row : allStrategies()) {
    SmallVector<StringRef> kinds;
    row.replicated.split(kinds, '|', -1, /*KeepEmpty=*/false);
    for (StringRef kind : kinds)
      EXPECT_TRUE(is_contained({"master", "compute", "state"}, kind))
          << row.name.str();
    EXPECT_EQ(row.replicates("master"), row.replicates("state"))
        << row.name.str();
    EXPECT_TRUE(row.replicates("compute") || !row.replicates("master"))
        << row.name.str();
  }
}

// Two rows differ in what they do, and not in the name alone, so that a row can
// be found by what it does.
TEST(StrategyTable, RowsDiffer) {
  for (const StrategyInfo &a : allStrategies())
    for (const StrategyInfo &b : allStrategies())
      EXPECT_EQ(&a != &b, shardsMore(&a, &b) || shardsMore(&b, &a))
          << a.name.str() << " " << b.name.str();
}

// --persist and the errors about strategies name another row.
TEST(StrategyTable, NeighboursExist) {
  for (const StrategyInfo &row : allStrategies()) {
    ASSERT_NE(persistent(&row), nullptr) << row.name.str();
    EXPECT_FALSE(persistent(&row)->gathersWeights());
    EXPECT_EQ(persistent(&row)->over, row.over);
    ASSERT_NE(overAllRanks(&row), nullptr) << row.name.str();
    EXPECT_EQ(overAllRanks(&row)->over, CutOver::Ranks);
  }
}

// The order in which summaries list strategies.
TEST(StrategyTable, SortsBySharding) {
  SmallVector<Strategy> rows = to_vector(make_pointer_range(allStrategies()));
  llvm::sort(rows, shardsMore);
  EXPECT_EQ(
      join(map_range(rows, [](Strategy row) { return row->name.str(); }), " "),
      "zero3 hybrid zero2 hybrid_zero2 oss zero1 hybrid_zero1 ddp");
  EXPECT_EQ(rows.front(), defaultStrategy());
  EXPECT_EQ(rows.back(), unsharded());
}

} // namespace
