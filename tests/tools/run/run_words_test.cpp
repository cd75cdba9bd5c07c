// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command line of `fsdpc run`: whose a word is, hosts, and how many ranks
// are left after a host is lost.
#include "runtime/support/programs.h"
#include "tools/run/arguments.h"
#include "tools/run/job.h"
#include "tools/run/remote_script.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace fsdpc;
using namespace fsdpc::run;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

namespace {

std::string faultOf(const std::vector<std::string> &words) {
  bool helped = false;
  Result<Arguments> arguments = parseArguments(words, helped);
  return arguments ? "" : arguments.error().message;
}

Arguments parsed(const std::vector<std::string> &words) {
  bool helped = false;
  Result<Arguments> arguments = parseArguments(words, helped);
  EXPECT_TRUE(arguments) << arguments.error().message;
  return std::move(*arguments);
}

// A value that looks like a model stays with its flag.
TEST(RunWords, GoToTheirReaders) {
  Result<Words> words = sortWords(
      {"-np", "4", "--param-dtype", "bf16", "gpt.onnx", "--shuffle", "--data",
       "x=x.npy", "--resume", "--steps=3", "--nesterov", "--lr", "1"});
  ASSERT_TRUE(words);
  EXPECT_EQ(words->target, "gpt.onnx");
  EXPECT_THAT(words->own, ElementsAre("--np", "4"));
  EXPECT_THAT(words->compiler,
              ElementsAre("--param-dtype", "bf16", "--nesterov"));
  // Both have --lr, and the program's counts.
  EXPECT_THAT(words->program,
              ElementsAre("--shuffle", "--data", "x=x.npy", "--resume",
                          "--steps=3", "--lr", "1"));
}

TEST(RunWords, ThatNobodyReadsAreRefused) {
  EXPECT_THAT(faultOf({"a.onnx", "--stepz", "3"}),
              HasSubstr("unknown flag '--stepz'; did you mean '--steps'?"));
  EXPECT_THAT(faultOf({"a.onnx", "-o", "train"}),
              HasSubstr("compile with 'fsdpc MODEL -o PROGRAM'"));
  EXPECT_THAT(faultOf({"a.onnx", "b.onnx"}),
              HasSubstr("unexpected argument 'b.onnx'"));
  EXPECT_THAT(faultOf({"a.onnx", "--steps"}),
              HasSubstr("'--steps' needs a value"));
  EXPECT_THAT(faultOf({"./train", "--param-dtype=bf16"}),
              HasSubstr("'./train' is compiled; give the .onnx model"));
  EXPECT_THAT(faultOf({"./train", "--ranks", "2"}),
              HasSubstr("'--ranks' is decided by -np"));
  EXPECT_THAT(faultOf({"./train", "--restarts", "2"}),
              HasSubstr("--restarts needs --checkpoint DIR"));
  EXPECT_THAT(faultOf({"./train", "-np", "0"}),
              HasSubstr("-np: '0' is neither a number from 1 nor auto"));
  EXPECT_THAT(faultOf({}), HasSubstr("no model or program given"));
}

TEST(RunArguments, ShareMicrobatchesAmongRanks) {
  EXPECT_EQ(parsed({"./t", "-np", "2", "--accumulate", "3"}).microbatches, 6);
  EXPECT_EQ(parsed({"./t", "-np", "2", "--microbatches", "8"}).microbatches, 8);
  EXPECT_THAT(faultOf({"./t", "-np", "3", "--microbatches", "8"}),
              HasSubstr("--microbatches 8 is not a multiple of -np 3"));
  EXPECT_THAT(faultOf({"./t", "--accumulate=2", "--microbatches", "8"}),
              HasSubstr("omit one of them"));
}

TEST(RunArguments, FillHosts) {
  Arguments arguments = parsed({"./t", "-np", "4", "--hosts", "a,b"});
  EXPECT_EQ(listOf(arguments.hosts), "a:2,b:2");
  EXPECT_EQ(parsed({"./t", "--hosts", "a:3,b"}).ranks, 4);
  EXPECT_THAT(faultOf({"./t", "-np", "4", "--hosts", "a:1,b:2"}),
              HasSubstr("-np 4 is more than the 3 slots"));
}

TEST(RunHosts, HaveNamesAndSlots) {
  Result<std::vector<Host>> hosts = parseHosts("me@a:2,[fd00::1]:3,b");
  ASSERT_TRUE(hosts);
  EXPECT_EQ((*hosts)[0].address(), "a");
  EXPECT_EQ((*hosts)[1].name, "fd00::1");
  EXPECT_EQ((*hosts)[1].slots, 3);
  EXPECT_EQ((*hosts)[2].slots, 0);
  // Each would be an option or a command of a remote shell.
  for (const char *text : {"", "a,", "-oProxyCommand=x", "a;reboot", "a:0",
                           "a:x", "a:", "[a]3", "$(x)", "a b"})
    EXPECT_FALSE(parseHosts(text)) << text;
  EXPECT_FALSE(parseHosts("a,a"));
}

TEST(RunHosts, ThatAreLeftTakeRanksThatDivideTheStep) {
  RankRule rule = {.ranks = 8, .least = 2, .microbatches = 24, .group = 1};
  EXPECT_EQ(ranksFor(8, rule), 8);
  EXPECT_EQ(ranksFor(7, rule), 6);
  EXPECT_EQ(ranksFor(5, rule), 4);
  EXPECT_EQ(ranksFor(1, rule), std::nullopt);
  rule.group = 4;
  EXPECT_EQ(ranksFor(7, rule), 4);
  rule.least = 8;
  EXPECT_EQ(ranksFor(7, rule), std::nullopt);
  EXPECT_EQ(listOf(place({{"a", 2}, {"b", 2}, {"c", 2}}, 3)), "a:2,b:1");
}

// The codes of docs/jobs.md.
TEST(RunJob, StartsAgainAfterFaultsOfMachines) {
  for (int code : {4, 5, 137, 143, 205})
    EXPECT_TRUE(startsAgain(code)) << code;
  for (int code : {0, 1, 2, 3, 126, 127, 134, 139})
    EXPECT_FALSE(startsAgain(code)) << code;
}

TEST(RunJob, ReplacesFlagsOfTheFirstStart) {
  std::vector<std::string> words = {"--resume=5", "--accumulate", "2",
                                    "--resume",   "--log",        "l"};
  EXPECT_THAT(without(words, "--resume"),
              ElementsAre("--accumulate", "2", "--log", "l"));
  EXPECT_THAT(without(words, "--accumulate"),
              ElementsAre("--resume=5", "--resume", "--log", "l"));
  EXPECT_EQ(valueOf({"--log", "a", "--log=b"}, "--log"), "b");
  EXPECT_THAT(valueOf({"--log"}, "--log"), IsEmpty());
}

TEST(RunJob, QuotesWordsForTheShell) {
  EXPECT_EQ(shellQuoted("it's $x"), "'it'\\''s $x'");
}

} // namespace
