// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rules that change names: which names they change, and which are refused.
#include "runtime/support/renaming.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::HasSubstr;

namespace {

using Texts = std::vector<std::string>;

std::string renamed(const Texts &rules, const std::string &name) {
  auto renaming = Renaming::parse("--rename", rules);
  return renaming ? (*renaming)(name) : renaming.error().message;
}

std::string fault(const Texts &rules, const Texts &names) {
  auto renaming = Renaming::parse("--rename", rules);
  Status checked = renaming ? renaming->check(names) : renaming.error();
  return checked ? "" : checked.error().message;
}

TEST(Renaming, RulesAreForPrefixes) {
  EXPECT_EQ(renamed({"model.="}, "model.a.model.b"), "a.model.b");
  EXPECT_EQ(renamed({"=model."}, "a"), "model.a");
  EXPECT_EQ(renamed({"model.=net."}, "a.model.b"), "a.model.b");
  EXPECT_EQ(renamed({}, "a"), "a");
}

// The first rule that matches counts, and no other is applied to its result.
TEST(Renaming, TheFirstRuleCounts) {
  EXPECT_EQ(renamed({"a.=b.", "b.=c."}, "a.x"), "b.x");
  EXPECT_EQ(renamed({"a.b.=", "a.=c."}, "a.b.x"), "x");
  EXPECT_EQ(renamed({"a.b.=", "a.=c."}, "a.d"), "c.d");
}

TEST(Renaming, AStarStandsForTheSameText) {
  const Texts rule = {"*.default.weight=*.weight"};
  EXPECT_EQ(renamed(rule, "q.lora_A.default.weight"), "q.lora_A.weight");
  EXPECT_EQ(renamed(rule, "q.default.weight.x"), "q.default.weight.x");
  EXPECT_EQ(renamed({"ab*ba=*"}, "aba"), "aba"); // both need their own text
  EXPECT_EQ(renamed({"ab*ba=*"}, "abba"), "");
}

TEST(Renaming, OtherFormsAreRefused) {
  for (const char *rule :
       {"", "=", "model.", "a=b=c", "a*=b", "a=b*", "a*b*=a*b*"})
    EXPECT_THAT(renamed({rule}, "a"), HasSubstr("is not of the form OLD=NEW"))
        << rule;
}

TEST(Renaming, NamesStayDifferent) {
  EXPECT_EQ(fault({"model.="}, {"model.a", "b"}), "");
  EXPECT_EQ(fault({"model.="}, {"model.a", "a"}),
            "--rename: 'model.a' and 'a' would both be 'a'");
  EXPECT_EQ(fault({"a.=x.", "b.=x."}, {"a.w", "b.w"}),
            "--rename: 'a.w' and 'b.w' would both be 'x.w'");
}

TEST(Renaming, NamesStayNames) {
  EXPECT_EQ(fault({"model.w="}, {"model.w"}),
            "--rename: 'model.w' would be '', which no tensor can be called");
  EXPECT_THAT(fault({"w=__metadata__"}, {"w"}),
              HasSubstr("'w' would be '__metadata__', which no tensor"));
}

// A rule that changes nothing is misspelt.
TEST(Renaming, EachRuleIsNeeded) {
  EXPECT_EQ(fault({"modle.="}, {"model.a"}),
            "--rename: 'modle.=' changes no name; the first is 'model.a'");
  EXPECT_THAT(fault({"model.=", "model.a.="}, {"model.a.b"}),
              HasSubstr("'model.a.=' changes no name"));
}

} // namespace
