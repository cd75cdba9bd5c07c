// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Foreign text for a terminal: what stays, and what is escaped.
#include "runtime/support/spelling.h"

#include <gtest/gtest.h>

using namespace fsdpc::runtime;

namespace {

TEST(Printable, KeepsText) {
  for (const char *text :
       {"", "h.1.weight", "modèle", "重み", "😀", "a\\b", "\xcd\xbf"})
    EXPECT_EQ(printable(text), text);
}

TEST(Printable, EscapesWhatCommandsATerminal) {
  EXPECT_EQ(printable("a\x1b[2J\r\nb\x7f"), "a\\x1b[2J\\x0d\\x0ab\\x7f");
  // C1 controls: U+009B begins a sequence as ESC [ does.
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b"
            "31m");
  // U+202E turns what follows round, U+2028 ends a line.
  EXPECT_EQ(printable("\xe2\x80\xae"), "\\xe2\\x80\\xae");
  EXPECT_EQ(printable("\xe2\x80\xa8"), "\\xe2\\x80\\xa8");
  EXPECT_EQ(printable("\xe2\x81\xa6"), "\\xe2\\x81\\xa6");
  EXPECT_EQ(printable("\xd8\x9c"), "\\xd8\\x9c");
  EXPECT_EQ(printable("\xc2\xa0"), "\xc2\xa0");
}

// A soft hyphen, a space without width, a mark of byte order, a tag, a Hangul
// filler, a selector of variants, and an empty braille cell.
TEST(Printable, EscapesWhatCannotBeSeen) {
  EXPECT_EQ(printable("w\xc2\xad"), "w\\xc2\\xad");
  EXPECT_EQ(printable("w\xe2\x80\x8b"), "w\\xe2\\x80\\x8b");
  EXPECT_EQ(printable("\xef\xbb\xbfw"), "\\xef\\xbb\\xbfw");
  EXPECT_EQ(printable("w\xf3\xa0\x81\x81"), "w\\xf3\\xa0\\x81\\x81");
  EXPECT_EQ(printable("w\xe3\x85\xa4"), "w\\xe3\\x85\\xa4");
  EXPECT_EQ(printable("w\xef\xb8\x8f"), "w\\xef\\xb8\\x8f");
  EXPECT_EQ(printable("w\xe2\xa0\x80"), "w\\xe2\\xa0\\x80");
}

// Alone, cut off, too long, a surrogate, and beyond the last character.
TEST(Printable, EscapesWhatIsNotUtf8) {
  EXPECT_EQ(printable("mod\xe9l"), "mod\\xe9l");
  EXPECT_EQ(printable("\xe2\x80"), "\\xe2\\x80");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_FALSE(isUtf8("mod\xe9l"));
  EXPECT_TRUE(isUtf8("modèle"));
  EXPECT_TRUE(isUtf8(""));
}

// What has been escaped once is text, so a second time changes nothing.
TEST(Printable, IsIdempotent) {
  std::string once = printable("\xe9\x1b\n");
  EXPECT_EQ(printable(once), once);
}

// The message around a name of a megabyte is read, and the name is recognised.
TEST(Printable, ShortensLongWordsInTheMiddle) {
  std::string path(4096, 'p'), name = "first" + std::string(1000000, 'n');
  EXPECT_EQ(printable("'" + path.substr(2) + "' is"),
            "'" + path.substr(2) + "' is");
  std::string line = printable("input '" + name + "last' has no data");
  EXPECT_EQ(line.substr(0, 14), "input 'firstnn");
  EXPECT_NE(line.find("nn [... 996939 bytes ...] nn"), line.npos) << line;
  EXPECT_EQ(line.substr(line.size() - 19), "nnlast' has no data");
  EXPECT_LT(line.size(), 3200u);
  EXPECT_EQ(printable(line), line);
  EXPECT_EQ(printableLines("a " + name + "\n\tb"),
            "a " + printable(name) + "\n\tb");
}

// No character is cut, and a name that has blanks is shortened as a line.
TEST(Printable, ShortensLinesAndLeavesCharactersWhole) {
  std::string name, blanks;
  for (int i = 0; i < 300000; ++i) {
    name += "重み";
    blanks += "a ";
  }
  for (const std::string &text : {name, "x" + name, "xy" + name}) {
    EXPECT_TRUE(isUtf8(printable(text)));
    EXPECT_EQ(printable(text).find("\\x"), std::string::npos);
  }
  EXPECT_LT(printable(blanks).size(), 16000u);
  std::string words;
  for (int i = 0; i < 10; ++i)
    words += std::string(4000, 'w') + ' ';
  for (const std::string &text : {blanks, words})
    EXPECT_EQ(printable(printable(text)), printable(text));
}

TEST(Printable, LeavesTheEndsOfLines) {
  EXPECT_EQ(printableLines("a\tb\nc\x1b\n"), "a\tb\nc\\x1b\n");
}

} // namespace
