// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reader of foreign JSON: what it refuses before the text costs more than
// its size.
#include "runtime/support/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace fsdpc::runtime;

namespace {

// Returns what the parser says of the text, or "" if it takes it.
std::string faultOf(const std::string &text, int deepest) {
  try {
    parseJson(text, deepest);
    return "";
  } catch (const std::exception &fault) {
    return fault.what();
  }
}

std::string nested(size_t depth, const std::string &open,
                   const std::string &close) {
  std::string text;
  for (size_t i = 0; i < depth; ++i)
    text += open;
  text += "1";
  for (size_t i = 0; i < depth; ++i)
    text += close;
  return text;
}

// A list within `deepest` others is read, and none below.
TEST(JsonText, refusesWhatIsNestedTooDeeply) {
  const std::pair<const char *, const char *> kinds[] = {
      {"[", "]"}, {"{\"a\":", "}"}, {"[{\"a\":", "}]"}};
  for (auto [open, close] : kinds) {
    size_t levels = std::string(open) == "[{\"a\":" ? 2 : 1;
    EXPECT_EQ(faultOf(nested(4 / levels, open, close), 3), "");
    EXPECT_EQ(faultOf(nested(6 / levels, open, close), 3),
              "it is nested too deeply");
    EXPECT_EQ(faultOf(nested(400000, open, close), 3),
              "it is nested too deeply");
  }
  // Also where the text ends before its lists do.
  EXPECT_EQ(faultOf(std::string(400000, '['), 3), "it is nested too deeply");
}

TEST(JsonText, refusesAKeyThatStandsTwiceInAnObject) {
  EXPECT_EQ(faultOf(R"({"a": 1, "b": {"a": 2}, "c": [{"a": 3}, {"a": 4}]})", 3),
            "");
  EXPECT_EQ(faultOf(R"({"a": 1, "a": 2})", 3), "'a' stands in it twice");
  EXPECT_EQ(faultOf(R"([{"b": {"a": 1, "\u0061": 2}}])", 3),
            "'a' stands in it twice");
}

TEST(JsonText, refusesMoreValuesThanMemoryShouldHold) {
  std::string text = "[";
  text.reserve(50'000'000);
  for (int i = 0; i < 20'000'001; ++i)
    text += "1,";
  EXPECT_EQ(faultOf(text, 3), "it holds more than 20000000 values");
}

// An object that keeps the order of its keys would take minutes for a million.
TEST(JsonText, refusesObjectsWithManyKeysInOrder) {
  std::string text = "{";
  for (int i = 0; i < 100'000; ++i)
    text += "\"" + std::to_string(i) + "\": 1,";
  EXPECT_EQ(faultOf(text, 3), "an object in it has more than 1000 keys");
  text.back() = '}';
  EXPECT_EQ(parseJson<nlohmann::json>(text, 3).size(), 100'000u);
}

TEST(JsonText, throwsWhatTheParserThrows) {
  EXPECT_THROW(parseJson("{\"a\": ", 3), nlohmann::json::parse_error);
  EXPECT_THROW(parseJson("\"\xff\"", 3), nlohmann::json::parse_error);
  EXPECT_TRUE(parseJsonOrNull("{", 3).is_null());
  EXPECT_TRUE(parseJsonOrNull("[[[[1]]]]", 2).is_null());
  EXPECT_EQ(parseJsonOrNull("{\"a\": 1}", 2)["a"], 1);
}

} // namespace
