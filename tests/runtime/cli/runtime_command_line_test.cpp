// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The flags of a program: what they mean, and that the message of a mistake
// names what would have been right. A program with two inputs stands for all.
#include "runtime/cli/command_line.h"
#include "runtime/core/resources.h"
#include "runtime/support/foreign_names.h"
#include "runtime/support/own_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::AllOf;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

namespace {

struct Parsed {
  bool ok;
  Options options;
  std::string error;
};

Parsed parse(std::vector<const char *> arguments) {
  Manifest manifest;
  manifest.lr = 0.5;
  manifest.inputs.push_back({"input_ids", {2, 8}, "i64"});
  manifest.inputs.push_back({"labels", {2, 8}, "i64"});
  arguments.insert(arguments.begin(), "prog");
  Parsed parsed;
  auto options =
      parseCommandLine(int(arguments.size()), arguments.data(), manifest);
  parsed.ok = bool(options);
  if (options)
    parsed.options = *options;
  else
    parsed.error = options.error().message;
  return parsed;
}

std::vector<const char *> with(std::vector<const char *> more) {
  more.insert(more.begin(), {"--data", "input_ids=a.npy", "--tokens",
                             "labels=b.txt:u8+1", "--steps", "3"});
  return more;
}

// Options that are not given have their documented defaults.
TEST(CommandLine, Defaults) {
  Parsed parsed = parse(with({}));
  ASSERT_TRUE(parsed.ok) << parsed.error;
  EXPECT_EQ(parsed.options.steps, 3);
  EXPECT_EQ(parsed.options.accumulate, 1);
  EXPECT_EQ(parsed.options.lr, 0.5);
  EXPECT_EQ(parsed.options.threads, 0);
  EXPECT_FALSE(parsed.options.data[0].tokens);
  EXPECT_EQ(parsed.options.data[1].file, "b.txt");
  EXPECT_EQ(parsed.options.data[1].shift, 1);
}

// A run that only evaluates needs no samples to train on.
TEST(CommandLine, EvaluatesOnly) {
  Parsed parsed = parse({"--steps", "0", "--eval", "input_ids=a.npy",
                         "--eval-tokens", "labels=b.txt:u8+1"});
  ASSERT_TRUE(parsed.ok) << parsed.error;
  EXPECT_EQ(parsed.options.steps, 0);
  ASSERT_EQ(parsed.options.eval.size(), 2u);
  EXPECT_EQ(parsed.options.eval[0].file, "a.npy");
  EXPECT_EQ(parsed.options.eval[1].width, "u8");
  EXPECT_EQ(parsed.options.data.size(), 2u);
}

// Values are parsed exactly, up to the largest seed.
TEST(CommandLine, Values) {
  Parsed parsed =
      parse(with({"--lr=1e-3", "--lr-schedule=cosine,warmup=4,min=1e-5",
                  "--seed", "18446744073709551615", "--shuffle"}));
  ASSERT_TRUE(parsed.ok) << parsed.error;
  EXPECT_EQ(parsed.options.lr, 1e-3);
  EXPECT_EQ(parsed.options.schedule.kind, LrSchedule::cosine);
  EXPECT_EQ(parsed.options.schedule.warmup, 4);
  EXPECT_EQ(parsed.options.schedule.minimum, 1e-5);
  EXPECT_EQ(parsed.options.seed, ~uint64_t(0));
  EXPECT_TRUE(parsed.options.shuffle);
}

// --help shows the program's own inputs and how microbatches take samples.
TEST(CommandLine, HelpTeaches) {
  Parsed parsed = parse({"--help"});
  EXPECT_TRUE(parsed.ok);
  for (const char *part : {"--accumulate", "mpirun -np", "input_ids i64[2, 8]",
                           "(s*V+j)*b", "cosine"})
    EXPECT_THAT(parsed.options.help, HasSubstr(part));
}

// --help has the flags that most runs need, and says how many more there are.
TEST(CommandLine, HelpIsShort) {
  std::string few = parse({"--help"}).options.help,
              all = parse({"--help-all"}).options.help;
  EXPECT_THAT(few, AllOf(HasSubstr("\n  --checkpoint DIR"),
                         Not(HasSubstr("--nccl-max-ctas")),
                         ContainsRegex("[0-9]+ more flags: .* --help-all")));
  EXPECT_THAT(all, AllOf(HasSubstr("--nccl-max-ctas"),
                         Not(HasSubstr("more flags")), HasSubstr("(s*V+j)*b")));
  // Long texts go on in further lines, which begin with more spaces.
  int flags = 0;
  for (size_t at = 0; (at = few.find("\n  -", at)) != few.npos; ++at)
    ++flags;
  EXPECT_LE(flags, 30);
}

// --info works without data or steps.
TEST(CommandLine, InfoNeedsNothingElse) {
  EXPECT_TRUE(parse({"--info"}).options.info);
}

// Each mistake has one line that names the value at fault and, if there is one
// close to it, what was probably meant.
TEST(CommandLine, MistakesNameTheNearest) {
  struct {
    std::vector<const char *> arguments;
    const char *message;
  } cases[] = {
      {with({"--stepz", "4"}), "unknown flag '--stepz'; did you mean "
                               "'--steps'?"},
      {with({"--acumulate=4"}), "did you mean '--accumulate'?"},
      {with({"--zzzzzz"}), "unknown flag '--zzzzzz'; see --help"},
      {with({"stray"}), "unexpected argument 'stray'"},
      {{"--steps", "-1"}, "--steps: '-1' is not a whole number of at least 0"},
      {{"--steps", "0"}, "--steps 0 needs --eval NAME=FILE"},
      {{"--eval-every", "5"}, "--eval-every needs --eval NAME=FILE"},
      {with({"--histogram-every=5"}), "needs --tensorboard DIR"},
      {{"--patience", "5"}, "--patience needs --eval NAME=FILE"},
      {{"--eval", "labels=a.npy"},
       "input 'input_ids' has no data: give --eval input_ids=FILE.npy"},
      {{"--eval-tokens", "label=a.npy"}, "--eval-tokens: there is no input"},
      {{"--trace", "t.json", "--eval", "x=a.npy"}, "omit it or --eval"},
      {{"--steps", "4x"}, "'4x' is not a whole number"},
      {with({"--threads=0"}), "at least 1"},
      {with({"--save-ema=x.safetensors"}), "compile it with --ema=DECAY"},
      {with({"--lr=nan"}), "'nan' is not a number of at least 0"},
      {with({"--lr=-1"}), "'-1' is not a number of at least 0"},
      {with({"--seed=-1"}), "'-1' is not a whole number from 0"},
      {with({"--lr-schedule=cosin"}), "did you mean 'cosine'?"},
      {with({"--lr-schedule=cosine,warmpu=3"}), "did you mean 'warmup'?"},
      {with({"--lr-schedule=linear,warmup=x"}), "warmup 'x'"},
      {with({"--lr-schedule=linear,warmup= 1"}), "warmup ' 1'"},
      {with({"--lr-schedule=linear,min=0,min=1"}), "'min' stands twice"},
      {with({"--lr= 1"}), "' 1' is not a number"},
      {with({"--save", ""}), "'' is not a path"},
      {with({"--data", "input_idz=a.npy"}), "did you mean 'input_ids'?"},
      {with({"--data", "labels=a.npy"}), "input 'labels' is given twice"},
      {with({"--data", "labels"}), "'labels' is not NAME=FILE"},
      {{"--data", "labels=a.npy", "--steps", "1"},
       "input 'input_ids' has no data: give --data input_ids=FILE.npy"},
      {{"--data", "labels=a.npy", "--data", "input_ids=b.npy"},
       "--steps is missing"},
      {with({"--log"}), "--log"},
  };
  for (auto &[arguments, message] : cases) {
    Parsed parsed = parse(arguments);
    EXPECT_FALSE(parsed.ok) << message;
    EXPECT_THAT(parsed.error, HasSubstr(message));
    EXPECT_EQ(parsed.error.find('\n'), std::string::npos);
  }
}

// Names of other tools get advice instead of the nearest word, however they are
// spelt. Whatever the advice says of the program is one of its flags.
TEST(CommandLine, NamesOfOtherToolsAreKnown) {
  EXPECT_EQ(parse(with({"--grad-clip=1"})).error,
            "unknown flag '--grad-clip'; write '--clip-grad-norm=X' of fsdpc");
  EXPECT_THAT(parse(with({"--gradient_accumulation_steps", "4"})).error,
              HasSubstr("write '--accumulate K' of the program"));
  EXPECT_THAT(parse(with({"--batch-size=4"})).error,
              HasSubstr("first axis of the model's inputs"));
  EXPECT_THAT(parse(with({"--Learning_Rate=4"})).error,
              HasSubstr("write '--lr X'"));
  EXPECT_THAT(parse(with({"--strategy=zero2"})).error,
              HasSubstr("it is a flag of fsdpc"));
  EXPECT_THAT(parse(with({"--lr_schedule=cosine"})).error,
              HasSubstr("write '--lr-schedule' of the program"));
  for (const ForeignFlag &foreign : foreignFlags()) {
    std::string advice = foreign.advice;
    size_t at = advice.find("'--");
    if (advice.find("of the program") == std::string::npos ||
        at == std::string::npos)
      continue;
    std::string flag =
        advice.substr(at + 1, advice.find_first_of(" ='", at + 1) - at - 1);
    EXPECT_THAT(parse({flag.c_str()}).error,
                testing::Not(HasSubstr("unknown flag")))
        << foreign.name;
  }
}

// Every flag of fsdpc is known as one, unless the program has it too.
TEST(CommandLine, KnowsTheFlagsOfTheCompiler) {
  for (std::string_view name : compilerFlags()) {
    std::string flag = "--" + std::string(name);
    if (std::ranges::find(programFlags(), name) == programFlags().end())
      EXPECT_THAT(parse({flag.c_str()}).error,
                  HasSubstr("it is a flag of fsdpc, at compile time"))
          << name;
  }
}

// LLVM and the kernel name some features differently.
TEST(Processor, NamesWhatIsLacking) {
  std::string cpuinfo = "model name : x\nflags\t\t: fpu pni ssse3 sse4_1 avx2 "
                        "bmi1 abm avx512_bf16 avx512_vnni amx_tile\n";
  EXPECT_THAT(unlistedFeatures({"sse3", "sse4.1", "avx2", "bmi", "lzcnt",
                                "avx512bf16", "avx512vnni", "amx-tile", "x87"},
                               cpuinfo),
              IsEmpty());
  EXPECT_THAT(unlistedFeatures({"avx2", "avx512f", "fma"}, cpuinfo),
              ElementsAre("avx512f", "fma"));
}

// Without /proc there is no list, which does not mean that all is lacking.
TEST(Processor, NeedsNoList) {
  EXPECT_THAT(unlistedFeatures({"avx2", "fma"}, ""), IsEmpty());
}

// The machine that runs the tests has what programs need.
TEST(Processor, IsAsked) {
  EXPECT_THAT(lackingFeatures({"avx2", "fma"}), testing::IsEmpty());
  EXPECT_THAT(lackingFeatures({"avx2", "no-such-thing"}),
              testing::ElementsAre("no-such-thing"));
}

} // namespace
