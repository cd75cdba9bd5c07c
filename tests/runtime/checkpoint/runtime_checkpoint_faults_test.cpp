// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs that write checkpoints, and whose system calls fail, are slow, or kill
// them. A run that follows always finds a whole checkpoint.
#include "tests/runtime/train/runtime_faults.h"

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

namespace {

// A run resumes, writes two checkpoints and removes one. Whatever fails, a run
// that follows finds a whole checkpoint, at the step where this one began or
// later.
TEST_F(Faults, ACheckpointIsLeftWhole) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  const std::string common = "--checkpoint c --keep 2 --resume --steps ";
  ASSERT_EQ(runWith("", common + "2").code, 0);
  shell("cp -r c old");
  const std::string more = common + "6 --checkpoint-every 2";
  Outcome counted = runWith("FAULT_COUNTS=counts", more);
  ASSERT_EQ(counted.code, 0) << counted.err;
  for (const Fault &fault : sampled(countedFaults())) {
    std::string variables = "FAULT_CALL=" + fault.call +
                            " FAULT_AT=" + std::to_string(fault.at) +
                            " FAULT_ERRNO=" + std::to_string(fault.code);
    shell("rm -rf c && cp -r old c");
    Outcome outcome = runWith(variables, more);
    EXPECT_TRUE(outcome.code == 0 || outcome.code == fault.exitCode())
        << variables << " " << outcome.err;
    EXPECT_EQ(outcome.errors(), outcome.code != 0) << outcome.err;
    Outcome next = runWith("", common + "1");
    EXPECT_EQ(next.code, 0) << variables << outcome.err << next.err;
    EXPECT_THAT(next.err, HasSubstr("resuming from 'c/step-000000"));
    if (outcome.code == 0) {
      EXPECT_THAT(next.err, HasSubstr("resuming from 'c/step-0000006'"))
          << variables << outcome.err;
    }
  }
}

// The process is killed at a system call of writing, replacing or resuming. The
// next run finds a whole checkpoint, of the step where this one began or later,
// and ends with the bits of a run that was never stopped.
TEST_F(Faults, AKilledRunLeavesAWholeCheckpoint) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  const std::string common = "--checkpoint c --keep 2 --resume --steps ";
  const std::string more = common + "6 --checkpoint-every 2 --save whole";
  ASSERT_EQ(runWith("", common + "2").code, 0);
  shell("cp -r c old");
  ASSERT_EQ(runWith("FAULT_COUNTS=counts", more).code, 0);
  std::vector<Fault> faults = sampled(countedFaults(), 20);
  size_t ends = 0;
  for (const Fault &fault : faults) {
    std::string variables = "FAULT_KILL=1 FAULT_CALL=" + fault.call +
                            " FAULT_AT=" + std::to_string(fault.at);
    shell("rm -rf c && cp -r old c");
    // 0: this run made fewer such calls than the one that counted them, as with
    // memory that threads map.
    Outcome killed =
        runWith(variables, common + "6 --checkpoint-every 2 --save again");
    EXPECT_THAT(killed.code, AnyOf(137, 0)) << variables << killed.err;
    ends += killed.code == 137;
    Outcome next = runWith("", common + "6 --save after");
    EXPECT_EQ(next.code, 0) << variables << next.err;
    EXPECT_THAT(next.err, HasSubstr("resuming from 'c/step-000000"));
    EXPECT_THAT(next.err, Not(HasSubstr("trying the checkpoint"))) << variables;
    EXPECT_EQ(folder.read("after"), folder.read("whole")) << variables;
    EXPECT_NE(shell(leftovers("c")).code, 0) << variables;
  }
  EXPECT_GT(ends, faults.size() / 2);
}

// Two ranks are processes of their own, and one of them or both at once are
// killed at a system call on the folder of checkpoints: while they resume,
// write two checkpoints or remove one. One process then continues for both,
// from a whole checkpoint, and ends with the bits of a job that was never
// stopped.
TEST_F(Faults, AKilledJobLeavesAWholeCheckpoint) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  const std::string common = "--checkpoint checkpoints --keep 2 --resume ",
                    more = common + "--steps 6 --checkpoint-every 2 ";
  ASSERT_EQ(pair("", "", common + "--steps 2").code, 0);
  shell("cp -r checkpoints old");
  Outcome counted = pair("FAULT_COUNTS=counts-0", "FAULT_COUNTS=counts-1",
                         more + "--save whole");
  ASSERT_EQ(counted.code, 0) << counted.err;
  struct Kill {
    int rank;
    std::string variables;
  };
  std::vector<Kill> kills;
  for (int rank : {0, 1}) {
    std::istringstream counts(folder.read("counts-" + std::to_string(rank)));
    std::string call;
    for (int64_t count; counts >> call >> count;)
      for (int64_t at = 1; at <= count; ++at)
        for (const char *who : {"1", "all"})
          kills.push_back({rank, std::string("FAULT_KILL=") + who +
                                     " FAULT_CALL=" + call +
                                     " FAULT_AT=" + std::to_string(at)});
  }
  EXPECT_GT(kills.size(), 100u);
  size_t ends = 0;
  kills = sampled(std::move(kills), 16);
  for (const auto &[rank, variables] : kills) {
    shell("rm -rf checkpoints && cp -r old checkpoints");
    Outcome killed = rank == 0 ? pair(variables, "", more + "--save again")
                               : pair("", variables, more + "--save again");
    ends += killed.code != 0;
    Outcome next =
        runWith("", common + "--steps 6 --accumulate 2 --save after");
    EXPECT_EQ(next.code, 0) << rank << variables << next.err;
    EXPECT_THAT(next.err, HasSubstr("resuming from 'checkpoints/step-000000"));
    EXPECT_THAT(next.err, Not(HasSubstr("trying the checkpoint")))
        << rank << variables;
    EXPECT_EQ(folder.read("after"), folder.read("whole")) << rank << variables;
    EXPECT_NE(shell(leftovers("checkpoints")).code, 0) << rank << variables;
  }
  // Threads may make a few calls less than in the run that counted them.
  EXPECT_GT(ends, kills.size() * 3 / 4);
}

// Steps do not wait for the disk: while a checkpoint is synced, which takes
// half a second here, the run goes on to its last step. A run of a step per
// checkpoint waits for the one before, and each of them is whole.
TEST_F(Faults, ACheckpointIsWrittenBesideTheTraining) {
  std::string slow =
      "FAULT_PATH=rank- FAULT_CALL=fsync FAULT_FROM=1 FAULT_SLEEP=500";
  Outcome outcome = runWith(
      slow, "--steps 12 --log log --ranks 2 --checkpoint c --checkpoint-every 6"
            " --after-checkpoint 'wc -l <log >>lines'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(folder.read("lines"), "13\n13\n");
  outcome = runWith(slow, "--steps 3 --checkpoint d --checkpoint-every 1");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err.find("warning"), std::string::npos) << outcome.err;
  EXPECT_EQ(shell("ls d").out, "step-0000001\nstep-0000002\nstep-0000003\n");
}

// A loss or a gradient that is not finite ends the run while a checkpoint is
// being written. That becomes whole all the same.
TEST_F(Faults, ABadStepWaitsForTheCheckpoint) {
  std::string slow =
      "FAULT_PATH=rank- FAULT_CALL=fsync FAULT_FROM=1 FAULT_SLEEP=500";
  Outcome outcome = runWith(slow, "--ranks 2 --steps 40 --lr 1e30 --checkpoint "
                                  "c --checkpoint-every 1");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_EQ(outcome.errors(), 1) << outcome.err;
  EXPECT_EQ(shell("ls -A c").out, ".lock\nstep-0000001\n");
}

// A checkpoint that fails while the run goes on is a warning, and the next one
// is written.
TEST_F(Faults, AFailureBesideTheTrainingIsAWarning) {
  Outcome outcome =
      runWith("FAULT_PATH=rank- FAULT_CALL=fsync FAULT_AT=1 FAULT_ERRNO=5",
              "--steps 12 --ranks 2 --checkpoint c --checkpoint-every 6");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(
      outcome.err.find("; the run goes on without a checkpoint of step 6"),
      std::string::npos)
      << outcome.err;
  EXPECT_EQ(shell("ls -A c").out, ".lock\nstep-0000012\n");
}

// With --keep K the disk holds K + 1 checkpoints for a while, because the
// oldest goes only when the newest is whole. Those that are there already need
// no more room.
TEST_F(Faults, ASmallDiskIsNamedBeforeTraining) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  // A warning says how much one checkpoint takes.
  auto warning = [&](int64_t room, const std::string &flags) {
    Outcome outcome = runWith("FAULT_ROOM=" + std::to_string(room),
                              "--checkpoint c " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    size_t at = outcome.err.find("has room for");
    return at == std::string::npos ? "" : outcome.err;
  };
  std::string none = warning(0, "--steps 2");
  EXPECT_THAT(none, HasSubstr("up to 1 more checkpoint takes "));
  int64_t one = 0; // bytes of the tensors of one
  for (const auto &entry :
       std::filesystem::directory_iterator(folder / "c/step-0000002"))
    if (entry.path().extension() == ".safetensors")
      one += int64_t(entry.file_size()) - headerBytes(entry.path());
  struct {
    const char *flags;
    int64_t checkpoints; // beside the one of step 2
  } cases[] = {
      // Steps 4, 6, 8: all of them stay.
      {"--steps 8 --checkpoint-every 2 --resume", 3},
      // One that is kept is there, two others come.
      {"--steps 8 --checkpoint-every 2 --keep 2 --resume", 2},
      {"--steps 8 --checkpoint-every 2 --keep 1 --resume", 1},
      // The run writes fewer than it may keep.
      {"--steps 4 --checkpoint-every 2 --keep 9 --resume", 1},
      // While step 8 is written, 4 stays for ever and 7 is kept; 2 is gone.
      {"--steps 8 --checkpoint-every 1 --keep 1 --keep-every 4 --resume", 2},
  };
  shell("cp -r c old");
  for (auto &[flags, checkpoints] : cases) {
    shell("rm -rf c && cp -r old c");
    std::string text = warning(checkpoints * one - 1, flags);
    EXPECT_THAT(text, HasSubstr("up to " + std::to_string(checkpoints) +
                                " more checkpoint"))
        << flags;
    shell("rm -rf c && cp -r old c");
    EXPECT_EQ(warning(checkpoints * one, flags), "") << flags;
  }
}

// The last checkpoint's failure is one line, also if it is due by
// --checkpoint-every.
TEST_F(Faults, TheLastCheckpointFailsOnce) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  Outcome outcome =
      runWith("FAULT_PATH=rank- FAULT_CALL=fsync FAULT_FROM=1 FAULT_ERRNO=28",
              "--steps 2 --ranks 2 --checkpoint c --checkpoint-every 2");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_EQ(outcome.errors(), 1) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("goes on"))) << outcome.err;
}

// A disk that is full for one of the files at the end costs none of the others.
TEST_F(Faults, TheLastFilesFailAlone) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  const std::string full = "FAULT_CALL=write FAULT_FROM=1 FAULT_ERRNO=28 ",
                    flags = "--steps 4 --ranks 2 --checkpoint c --save s.st "
                            "--trace t.json ";
  // Until it is complete, the file of --save is '#INODE (deleted)'.
  Outcome outcome = runWith(full + "FAULT_PATH=/#", flags);
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_EQ(outcome.errors(), 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("error: cannot save 's.st': "));
  EXPECT_EQ(shell("ls -A c").out, ".lock\nstep-0000004\n");
  EXPECT_EQ(shell("ls t.*").out, "t.0.json\nt.1.json\n");
  shell("rm -r c");
  for (const char *rank : {"rank-00000", "rank-00001"}) {
    outcome = runWith(full + "FAULT_PATH=" + rank, flags);
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(rank));
    EXPECT_TRUE(isSaved("s.st"));
    shell("rm -r c s.st");
  }
}

} // namespace
