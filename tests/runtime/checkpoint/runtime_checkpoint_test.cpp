// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checkpoints, on the toy program: a run that is resumed has the bits of one
// that was never stopped, on other ranks its losses. When they are written, and
// which of them stay.
#include "runtime/checkpoint/checkpoint_reader.h"
#include "tests/runtime/checkpoint/runtime_checkpoints.h"

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace {

// Trains 5 of 10 steps, as a job that is stopped does, then the rest. The
// schedule needs --steps 10 from the start.
TEST_F(Checkpoints, AResumedRunHasTheSameBits) {
  struct {
    const char *environment, *flags;
    int processes;
  } cases[] = {
      {"TOY_STRATEGY=zero3", "--accumulate 3", 1},
      {"TOY_STRATEGY=zero3 TOY_TYPE=bf16", "--ranks 2", 1},
      {"TOY_STRATEGY=zero1", "--ranks 2 --accumulate 2", 1},
      {"TOY_STRATEGY=zero1 TOY_TYPE=bf16", "", 2},
      {"TOY_STRATEGY=step", "--ranks 3", 1},
      {"TOY_STRATEGY=ddp", "--ranks 3", 1},
      {"TOY_STRATEGY=ddp TOY_TYPE=bf16", "--accumulate 2", 2},
  };
  for (auto &[environment, flags, processes] : cases) {
    clear();
    auto train = [&](const std::string &more) {
      std::string all = flags + common + more;
      return processes == 1 ? run(all, environment)
                            : mpi(processes, all, environment);
    };
    std::string whole = trace(train("--steps 10"));
    ASSERT_EQ(train("--steps 10 --checkpoint c --checkpoint-every 5").code, 0);
    // Writing checkpoints changes no bit.
    EXPECT_EQ(
        folder.read("out.safetensors"),
        whole.substr(whole.size() - folder.read("out.safetensors").size()));
    EXPECT_THAT(names("c"),
                ElementsAre(".lock", "step-0000005", "step-0000010"));
    shell("rm log"); // a resumed run would continue it
    Outcome outcome = train("--steps 10 --checkpoint c --resume=5");
    std::string rest = trace(outcome);
    ASSERT_EQ(log().size(), 6u) << outcome.err;
    EXPECT_EQ(log()[1]["step"], 5);
    EXPECT_EQ(rest, whole.substr(whole.size() - rest.size()))
        << environment << flags;
    EXPECT_THAT(outcome.err, HasSubstr("resuming from 'c/step-0000005'"));
  }
}

// Each run resumes from the same checkpoint, which three ranks wrote under
// zero3.
TEST_F(Checkpoints, OtherRanksAndStrategiesResume) {
  const std::string flags =
      " --shuffle --seed 3 --log log --save out.safetensors ";
  const std::string writer = "--accumulate 4 --ranks 3" + flags;
  ASSERT_EQ(run("--steps 12 " + writer).code, 0);
  std::vector<double> whole = losses();
  ASSERT_EQ(run("--steps 6 --checkpoint c " + writer).code, 0);
  struct {
    const char *environment, *flags;
  } cases[] = {
      {"", "--ranks 4 --accumulate 3 --threads 2"},
      {"", "--ranks 1 --accumulate 12"},
      {"TOY_STRATEGY=ddp", "--ranks 2 --accumulate 6"},
      {"TOY_STRATEGY=zero1", "--ranks 6 --accumulate 2"},
      {"TOY_STRATEGY=hybrid", "--ranks 6 --accumulate 2 --shard-group 2"}};
  for (auto &[environment, other] : cases) {
    shell("rm -rf d log && cp -r c d");
    Outcome outcome =
        run(other + flags + "--steps 12 --checkpoint d --resume", environment);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err,
                HasSubstr("the run resumes with other settings: "));
    std::vector<double> rest = losses();
    ASSERT_EQ(rest.size(), 6u);
    for (size_t i = 0; i < rest.size(); ++i)
      EXPECT_NEAR(rest[i], whole[6 + i], 1e-5) << environment << other << i;
  }
}

// Replicas share the work: together the files are as large as zero3's at that
// number of ranks. Other groups and strategies continue, with the same bits if
// the ranks are as many.
TEST_F(Checkpoints, GroupsWriteEachElementOnce) {
  const std::string flags = " --threads 1 --log log --save out.safetensors ",
                    four = "--ranks 4 --accumulate 3";
  ASSERT_EQ(run("--steps 6 " + four + flags).code, 0);
  std::vector<double> whole = losses();
  std::string saved = folder.read("out.safetensors");
  auto write = [&](const char *path, const char *environment,
                   const char *group) {
    Outcome outcome = run("--steps 3 --checkpoint " + std::string(path) + " " +
                              four + flags + group,
                          environment);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  };
  write("z", "TOY_STRATEGY=zero3", "");
  write("c", "TOY_STRATEGY=hybrid", "--shard-group 2");
  for (const std::string &name : names("z/step-0000003"))
    if (name != "checkpoint.json") {
      EXPECT_EQ(
          std::filesystem::file_size(folder / ("z/step-0000003/" + name)),
          std::filesystem::file_size(folder / ("c/step-0000003/" + name)));
    }
  struct {
    const char *environment, *flags;
  } cases[] = {{"TOY_STRATEGY=hybrid", "--ranks 4 --accumulate 3 "
                                       "--shard-group 2"},
               {"TOY_STRATEGY=hybrid", "--ranks 4 --accumulate 3 "
                                       "--shard-group 1"},
               {"TOY_STRATEGY=zero3", "--ranks 4 --accumulate 3"},
               {"TOY_STRATEGY=ddp", "--ranks 4 --accumulate 3"},
               {"TOY_STRATEGY=hybrid", "--ranks 6 --accumulate 2 "
                                       "--shard-group 3"},
               {"TOY_STRATEGY=zero3", "--ranks 3 --accumulate 4"}};
  for (auto &[environment, other] : cases) {
    shell("rm -rf d log && cp -r c d");
    Outcome outcome =
        run(other + flags + "--steps 6 --checkpoint d --resume", environment);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    std::vector<double> rest = losses();
    ASSERT_EQ(rest.size(), 3u);
    for (size_t i = 0; i < rest.size(); ++i)
      EXPECT_NEAR(rest[i], whole[3 + i], 1e-5) << environment << other << i;
    if (std::string(other).find("--ranks 4") != std::string::npos) {
      EXPECT_EQ(folder.read("out.safetensors"), saved) << environment << other;
    }
  }
}

TEST_F(Checkpoints, StepsCountFromTheStartOfTraining) {
  std::string flags = "--checkpoint c" + common;
  Outcome outcome = run("--steps 3 --resume " + flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("'c' has no checkpoint yet: starting at "
                                     "step 0"));
  std::string saved = folder.read("out.safetensors");
  std::filesystem::remove(folder / "out.safetensors");
  outcome = run("--steps 2 --lr 0.007 --resume " + flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("other settings")));
  EXPECT_THAT(outcome.err, HasSubstr("nothing to train: 3 steps are done"));
  EXPECT_EQ(folder.read("out.safetensors"), saved);
  outcome = run("--steps 4 --lr 0.007 --resume " + flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("other settings: --steps is '4', was '3', "
                                     "--lr is '0.007', was '0."));
}

// Other versions wrote numbers in another way. Seeds are compared exactly.
TEST_F(Checkpoints, NumbersAreComparedByValue) {
  const std::string flags = " --lr 300000 --seed 9007199254740993 "
                            "--checkpoint c ",
                    manifest = "c/step-0000001/checkpoint.json";
  ASSERT_EQ(run("--steps 1" + flags).code, 0);
  auto stored = parseCheckpoint(folder.read(manifest));
  ASSERT_TRUE(stored) << stored.error().message;
  for (auto &[name, value] : stored->settings)
    if (name == "--lr")
      value = value == "3e+05" ? "300000" : "3e+05";
    else if (name == "--seed")
      value = "9007199254740992";
  folder.write(manifest, toJson(*stored));
  Outcome outcome = run("--steps 2 --resume" + flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("--seed is '9007199254740993', was '"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("--lr is")));
}

// The two newest of five checkpoints stay.
TEST_F(Checkpoints, KeepRemovesTheOldest) {
  ASSERT_EQ(run("--steps 9 --checkpoint c --checkpoint-every 2 --keep 2").code,
            0);
  EXPECT_THAT(names("c"), ElementsAre(".lock", "step-0000008", "step-0000009"));
}

// Multiples of 4 stay for good.
TEST_F(Checkpoints, KeepEveryKeepsMultiples) {
  ASSERT_EQ(run("--steps 11 --checkpoint c --checkpoint-every 1 --keep 2 "
                "--keep-every 4")
                .code,
            0);
  EXPECT_THAT(names("c"), ElementsAre(".lock", "step-0000004", "step-0000008",
                                      "step-0000010", "step-0000011"));
}

// The command sees a whole checkpoint that stays until it has ended, also the
// last one; one that fails costs a warning.
TEST_F(Checkpoints, ACommandRunsAfterEach) {
  Outcome outcome =
      run("--steps 3 --ranks 2 --checkpoint \"it's c\" --checkpoint-every 1 "
          "--keep 1 --after-checkpoint 'sleep 0.2; cat {}/checkpoint.json "
          ">/dev/null && basename {} >>done'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(folder.read("done"), "step-0000001\nstep-0000002\nstep-0000003\n");
  outcome = run("--steps 1 --checkpoint d --after-checkpoint 'exit 3'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: --after-checkpoint 'exit 3' "
                                     "ended with exit code 3"));
}

// The copy that a checkpoint is written from counts as memory of the rank. A
// limit that has no room for it makes the steps wait for the disk instead.
TEST_F(Checkpoints, TheCopyIsPlanned) {
  // One checkpoint, at the end, needs no copy.
  ASSERT_EQ(run("--steps 2 --threads 1 --log log --checkpoint c").code, 0);
  int64_t peak = log()[0]["plan"]["peak"];
  EXPECT_FALSE(log()[0]["plan"].contains("checkpoint"));
  clear();
  const std::string flags =
      "--steps 2 --threads 1 --log log --checkpoint c --checkpoint-every 1";
  ASSERT_EQ(run(flags).code, 0);
  int64_t copy = log()[0]["plan"].value("checkpoint", 0);
  EXPECT_GT(copy, 0);
  EXPECT_EQ(log()[0]["plan"]["peak"], peak + copy);
  EXPECT_THAT(run("--info --checkpoint c --checkpoint-every 1").out,
              HasSubstr("\n  checkpoint  "));
  EXPECT_THAT(run("--info").out, Not(HasSubstr("\n  checkpoint  ")));
  clear();
  Outcome outcome = run(flags, "TOY_LIMIT=" + std::to_string(peak + copy - 1));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("does not fit in the --memory-limit"));
  EXPECT_EQ(log()[0]["plan"]["peak"], peak);
  EXPECT_THAT(names("c"), ElementsAre(".lock", "step-0000001", "step-0000002"));
  clear();
  outcome = run(flags, "TOY_LIMIT=" + std::to_string(peak + copy));
  EXPECT_THAT(outcome.err, Not(HasSubstr("--memory-limit")));
}

// The checkpoint of the step after which the signal ended the run.
TEST_F(Checkpoints, ASignalLeavesACheckpoint) {
  Outcome outcome =
      shell("( " TOY_PROGRAM " --data ids=ids.npy --data target=target.npy "
            "--steps 100000000 --checkpoint c --log log & pid=$!; "
            "for i in $(seq 200); do [ $(wc -l <log) -gt 2 ] 2>/dev/null && "
            "break; sleep 0.05; done; kill -TERM $pid; wait $pid; exit $? )");
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  size_t steps = log().size() - 1;
  char name[32];
  std::snprintf(name, sizeof name, "step-%07zu", steps);
  EXPECT_THAT(names("c"), ElementsAre(".lock", name));
  outcome = run("--steps 1 --checkpoint c --resume");
  EXPECT_THAT(outcome.err, HasSubstr("resuming from 'c/" + std::string(name)));
}

} // namespace
