// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// wrapLines: where lines break, and where they go on.
#include "runtime/support/wrap.h"

#include <gtest/gtest.h>

using fsdpc::wrapLines;

TEST(WrapLines, KeepsWhatFits) {
  for (const char *text : {"", "\n", "a b", "a b\n\n  c d\n"})
    EXPECT_EQ(wrapLines(text, 5), text);
}

TEST(WrapLines, GoesOnUnderTheLastColumnOfATable) {
  EXPECT_EQ(wrapLines("  --flag X   one two three four\n", 24),
            "  --flag X   one two\n"
            "             three four\n");
}

// As a flag whose name is too long for its column has its text in a line below.
TEST(WrapLines, GoesOnUnderTheBeginningOfALine) {
  EXPECT_EQ(wrapLines("    one two three", 12), "    one two\n    three");
}

TEST(WrapLines, BreaksLongWordsAtBars) {
  EXPECT_EQ(wrapLines("  -x  red|green|blue|white", 16),
            "  -x  red|green|\n      blue|white");
}

TEST(WrapLines, KeepsWordsWithoutPlaceForABreak) {
  EXPECT_EQ(wrapLines("go /a/path/to/it now", 8), "go\n/a/path/to/it\nnow");
}
