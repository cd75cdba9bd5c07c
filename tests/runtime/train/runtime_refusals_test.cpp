// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A whole program's refusals, as a user sees them: wrong data and numbers that
// are not finite, full disks, limits, command lines, and ranks that do not
// agree. Each ends the job with one line and an exit code, on every rank.
#include "runtime/data/safetensors.h"
#include "runtime/data/weights.h"
#include "tests/runtime/train/runtime_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

using namespace fsdpc;
using namespace fsdpc::runtime;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

namespace {

// Whatever is wrong with the data, however ranks were started, the whole job
// prints one error line and ends with 3.
TEST_F(Program, BadDataEndsEveryRankWithOneLine) {
  struct {
    std::string ids, message;
  } cases[] = {
      {npy<float>("<f4", "(40, 3)", 120),
       "contains f32, but input 'ids' is i64"},
      {npy<int64_t>("<i8", "(40, 2)", 80), "has shape [40, 2]"},
      {npy<int64_t>("<i8", "(40, 3)", 120), "sample 3 element 1: 10 is outside "
                                            "[0, 10) of input 'ids'"},
      {npy<uint8_t>("|u1", "(3, 3)", 9),
       "have different numbers of samples: 'ids.npy' has 3, 'target.npy' has "
       "40"},
      {"not numpy", "is not a .npy file"},
  };
  for (auto &[ids, message] : cases) {
    folder.write("ids.npy", ids);
    for (auto &outcome : {run("--steps 3 --ranks 3"), mpi(3, "--steps 3"),
                          torchrun(3, "--steps 3")}) {
      EXPECT_EQ(outcome.code, 1) << outcome.err;
      EXPECT_EQ(outcome.errors(), 1) << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr(message));
    }
  }
}

// With a bad id in the middle of the run, the steps before it are logged.
TEST_F(Program, BadDataLaterStopsAtItsStep) {
  std::string ids = folder.read("ids.npy");
  int32_t bad = 77;
  std::memcpy(&ids[128 + 21 * 12], &bad, 4); // sample 21: in step 3 if V = 3
  folder.write("ids.npy", ids);
  for (auto &outcome :
       {run("--steps 9 --ranks 3 --log log"), mpi(3, "--steps 9 --log log")}) {
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("sample 21 element 0: 77"));
    EXPECT_EQ(log().size(), 4u); // the header and steps 0, 1, 2
  }
}

// An infinite target gives an infinite loss. The message names the step, and
// the data before the learning rate.
TEST_F(Program, NonFiniteLossNamesStepAndData) {
  setTarget(13, INFINITY); // in step 2 if V = 3
  for (auto &outcome : {run("--steps 9 --ranks 3"), mpi(3, "--steps 9")}) {
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err,
                HasSubstr("error: step 2: the loss is inf; input 'target' has "
                          "inf in its data: 'target.npy' sample 13 element 0; "
                          "correct it, or if it is meant, as in a mask, use a "
                          "lower --lr"));
  }
}

// A large target gives an infinite loss too, and the first unit whose gradient
// is not finite is named.
TEST_F(Program, NonFiniteLossNamesStepAndUnit) {
  setTarget(13, 1e38f); // in step 2 if V = 3
  Outcome outcome = run("--steps 9 --ranks 3");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_EQ(outcome.errors(), 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("error: step 2: the loss is inf; "));
  EXPECT_THAT(outcome.err, HasSubstr("lower --lr or a longer warmup"));
}

// An error of 1e10 gives a finite loss of 1e20, but times weights of 1e38 an
// infinite gradient of the table.
TEST_F(Program, NonFiniteGradientNamesStepAndUnit) {
  SafeTensorsHeader header;
  std::string data;
  auto add = [&](const char *name, std::vector<float> values) {
    header.add(name, "f32", {int64_t(values.size())}, {});
    data.append(reinterpret_cast<char *>(values.data()), values.size() * 4);
  };
  add("table", std::vector<float>(10, 1e-20f));
  add("weight", {1e38f, 1e38f, 1e38f});
  add("bias", {1e10f});
  add("scale", {1});
  folder.write("i.safetensors", header.text() + data);
  Outcome outcome = run("--steps 2 --ranks 2 --init i.safetensors");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("step 0: the gradient is not finite; "
                                     "first unit with a non-finite gradient: "
                                     "'embed'"));
}

// A microbatch without valid targets counts as loss 0. One warning per run,
// since there may be many.
TEST_F(Program, NoValidTargetCountsZeroAndWarnsOnce) {
  std::string ids = folder.read("ids.npy");
  int32_t ignored = -100;
  for (int sample = 0; sample < 4; ++sample) // microbatches 0 and 1
    std::memcpy(&ids[128 + size_t(sample) * 12], &ignored, 4);
  folder.write("ids.npy", ids);
  Outcome outcome = run("--steps 2 --ranks 2 --log log");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(log()[1]["loss"], 0);
  EXPECT_GT(log()[2]["loss"], 0);
  size_t first = outcome.err.find("has no valid target");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(outcome.err.find("has no valid target", first + 1),
            std::string::npos);
}

// A limit on the size of files stands for a full disk. The old file stays, and
// nothing else is left behind.
TEST_F(Program, FullDiskKeepsTheOldFile) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the limit ends the sanitizer itself, before main";
#endif
  folder.write("out.safetensors", "old");
  Outcome outcome =
      shell("bash -c 'set -o pipefail; (ulimit -f 0; " TOY_PROGRAM
            " --data ids=ids.npy --data target=target.npy --steps 1 --ranks 2 "
            "--save out.safetensors) 2>&1 | cat >&2'");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("error: cannot save 'out.safetensors'"));
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_EQ(folder.read("out.safetensors"), "old");
  EXPECT_NE(shell("ls -A | grep tmp-").code, 0);
}

// Outputs that cannot be written are noticed before training, not after.
TEST_F(Program, UnwritablePathsFailBeforeTraining) {
  for (const char *flags :
       {"--save no/such/folder.safetensors", "--save /dev/full",
        "--save-gradients no/g", "--log no/log"}) {
    Outcome outcome = run("--steps 2 --ranks 2 " + std::string(flags));
    EXPECT_EQ(outcome.code, 1) << flags;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, Not(HasSubstr("ranks")));
  }
}

// A log tells of a run, and is not worth a run: one that takes no line is a
// warning, the first line too.
TEST_F(Program, GoesOnWithoutALogThatTakesNoLine) {
  Outcome outcome = run("--steps 2 --ranks 2 --log /dev/full");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.errors(), 0);
  EXPECT_THAT(outcome.err, HasSubstr("warning: cannot write '/dev/full'"));
  EXPECT_THAT(outcome.err, HasSubstr("the run goes on without its log"));
}

// What is asked for has not been said if nobody could read it.
TEST_F(Program, SaysThatItCouldNotPrint) {
  for (const char *flag : {"--help", "--info", "--manifest"}) {
    Outcome outcome = run(std::string(flag) + " > /dev/full");
    EXPECT_EQ(outcome.code, 3) << flag;
    EXPECT_THAT(outcome.err, HasSubstr("cannot write to stdout")) << flag;
  }
}

// Mistakes in the command line end with 2, and one rank reports them.
TEST_F(Program, CommandLineFaultsEndWithTwo) {
  for (auto &outcome : {run("--stepz 3 --ranks 2"), mpi(2, "--stepz 3")}) {
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err,
                HasSubstr("unknown flag '--stepz'; did you mean '--steps'?"));
  }
  Outcome outcome = mpi(2, "--steps 1 --ranks 2");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.errors(), 1);
}

TEST_F(Program, HelpAndInfo) {
  Outcome outcome = run("--help");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("--lr-schedule"));
  outcome = run("--info");
  EXPECT_EQ(outcome.code, 0);
  for (const char *part : {"0123456789abcdef", "toy --strategy=zero3", "table",
                           "= head.table", "frozen", "planned peak"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
}

// The program refuses more memory, more ranks or a lesser processor than it was
// compiled for.
TEST_F(Program, LimitsAreKept) {
  Outcome outcome = run("--steps 1 --ranks 2", "TOY_LIMIT=1000");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("exceeds --memory-limit of 1000 bytes; "
                                     "largest: "));
  outcome = run("--steps 1 --ranks 9");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("9 ranks exceed the maximum of 8"));
  outcome = run("--steps 1", "TOY_FEATURE=avx9000");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err,
              HasSubstr("this processor does not support 'avx9000'"));
}

// A process that is announced as one of two ranks, but cannot find the other,
// must not train as if it were alone.
TEST_F(Program, AnUnjoinedLauncherIsRefused) {
  Outcome outcome = run("--steps 1", "WORLD_SIZE=2 RANK=0 LOCAL_RANK=0");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("WORLD_SIZE=2"));
  EXPECT_THAT(outcome.err, HasSubstr("MASTER_ADDR is not set"));
  // Another rank by itself says so too: nobody else would.
  for (const char *rank : {"WORLD_SIZE=2 RANK=1", "WORLD_SIZE=2 RANK=1 "
                                                  "LOCAL_RANK=1"}) {
    outcome = run("--steps 1", rank);
    EXPECT_EQ(outcome.code, 1);
    EXPECT_EQ(outcome.errors(), 1);
  }
}

// A variable that is not quite a number is refused, where atoi would read one
// and the process train alone, or as a rank that does not exist.
TEST_F(Program, VariablesOfLaunchersAreParsedStrictly) {
  struct {
    const char *environment, *message;
  } cases[] = {
      {"WORLD_SIZE='2 ' RANK=0", "WORLD_SIZE='2 ' is not a whole number"},
      {"WORLD_SIZE=2 RANK=0x0", "RANK='0x0' is not a whole number"},
      {"WORLD_SIZE=2 RANK=5", "RANK=5 does not match WORLD_SIZE=2"},
      {"WORLD_SIZE=0 RANK=0", "WORLD_SIZE='0' is not a whole number from 1"},
      {"WORLD_SIZE=2 RANK=0 MASTER_ADDR=localhost MASTER_PORT=70000",
       "MASTER_PORT='70000' is not a whole number from 1 to 65535"},
      {"WORLD_SIZE=2 RANK=0 MASTER_ADDR=localhost MASTER_PORT=65535 "
       "TORCHELASTIC_USE_AGENT_STORE=True",
       "MASTER_PORT='65535' is not a whole number from 1 to 65534"},
      {"FSDPC_PORT=http", "FSDPC_PORT='http' is not a whole number"},
      {"FSDPC_JOIN_SECONDS=-1", "FSDPC_JOIN_SECONDS='-1' is not"},
      {"SLURM_NTASKS=2x SLURM_PROCID=0", "SLURM_NTASKS='2x' is not"},
  };
  for (auto &[environment, message] : cases) {
    Outcome outcome = run("--steps 1", environment);
    EXPECT_EQ(outcome.code, 1) << environment;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
  // Variables that announce no rank say nothing about this process.
  for (const char *harmless : {"RANK=worker-3", "WORLD_SIZE=", "SLURM_NTASKS=8",
                               "SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_JOB_ID=7 "
                               "SLURM_STEP_ID=4294967291"})
    EXPECT_EQ(run("--steps 1", harmless).code, 0) << harmless;
}

// Rank 0 names the ranks that do not connect in time.
TEST_F(Program, ATorchrunWhoseRanksDoNotComeEnds) {
  Outcome outcome =
      run("--steps 1", "WORLD_SIZE=2 RANK=0 LOCAL_RANK=0 MASTER_ADDR=localhost "
                       "MASTER_PORT=20999 FSDPC_JOIN_SECONDS=1");
  EXPECT_EQ(outcome.code, 5);
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 of 2 (torchrun, WORLD_SIZE=2"));
}

// torchrun tells each process its rank, so only rank 0 reports a mistake.
TEST_F(Program, MistakesUnderTorchrunAreSaidOnce) {
  Outcome outcome = torchrun(2, "--stepps 1");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.errors(), 1) << outcome.err;
}

// If the ranks of a job run different programs, or different schedules of one,
// all end before training.
TEST_F(Program, AnotherProgramOnARankIsNamed) {
  const std::string variables[] = {"TOY_PROGRAM_HASH=1111",
                                   "TOY_SCHEDULE_HASH=2222"};
  const std::string expected[] = {"rank 1 runs a different program than rank "
                                  "0: its program hash is '1111', "
                                  "rank 0's is 'fedcba9876543210'",
                                  "rank 1 runs a different schedule than rank "
                                  "0: its schedule hash is '2222', "
                                  "rank 0's is '0123456789abcdef'"};
  for (size_t i = 0; i < 2; ++i) {
    std::string other =
        " -np 1 env " + variables[i] +
        " " TOY_PROGRAM
        " --data ids=ids.npy --data target=target.npy --steps 1";
    for (auto &outcome : {mpi(1, "--steps 1 :" + other),
                          torchrun(2, "--steps 1", {"", variables[i]})}) {
      EXPECT_EQ(outcome.code, 1) << outcome.err;
      EXPECT_EQ(outcome.errors(), 1) << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr(expected[i]));
    }
  }
}

// Ranks whose options or data differ would wait forever, or learn something
// that no number of equal ranks would. The first difference is named.
TEST_F(Program, RanksThatDifferAreNamed) {
  std::string other = folder.read("ids.npy");
  other[128] = 3; // the first id, which is 0
  folder.write("other.npy", other);
  folder.write("few.npy", npy<int32_t>("<i4", "(12, 3)", 36, 1));
  std::string few = folder.read("few.npy");
  std::fill(few.begin() + 128, few.end(), 0);
  folder.write("few.npy", few);
  folder.write("few_target.npy", npy<float>("<f4", "(12,)", 12));
  struct {
    const char *ids, *flags, *message;
  } cases[] = {
      {"ids", "--steps 4", "--steps is '4' on rank 1 and '3' on rank 0"},
      {"ids", "--steps 3 --accumulate 2", "--accumulate is '2' on rank 1"},
      {"ids", "--steps 3 --lr 0.5", "--lr is '0.5' on rank 1"},
      {"ids", "--steps 3 --seed 7", "--seed is '7' on rank 1 and '0'"},
      {"ids", "--steps 3 --shuffle", "--shuffle is 'on' on rank 1 and 'off'"},
      {"few", "--steps 3", "the number of samples is '12' on rank 1 and '40'"},
      {"other", "--steps 3", "the hash of the samples of input 'ids' is "},
  };
  for (auto &[ids, flags, message] : cases) {
    std::string target = ids == std::string("few") ? "few_target" : "target";
    Outcome outcome =
        mpi(1, "--steps 3 : -np 1 " TOY_PROGRAM " --data target=" + target +
                   ".npy --data ids=" + ids + ".npy " + flags);
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

// More threads than cores is slow but legal: a warning.
TEST_F(Program, WarnsOfMoreThreadsThanCores) {
  EXPECT_THAT(run("--steps 1 --threads 64").err,
              HasSubstr("warning: each rank has 64 threads but"));
}

} // namespace
