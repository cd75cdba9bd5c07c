// Every system call of a run fails in turn (runtime_fault_shim.cpp). Whatever
// fails: the run ends by itself, with one line of error or none. Each file that
// it writes is the old one or the whole new one, and a run that reports success
// has saved its weights.
//
// The commit draws a sample of the failures; FSDPC_FAULTS=all takes all.
#include "tests/unit/runtime_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>

using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;

namespace {

const std::map<std::string, std::vector<int>> codes = {
    {"open", {EMFILE, EACCES, EIO}},
    {"read", {EIO}},
    {"write", {ENOSPC, EIO, EDQUOT}},
    {"fsync", {EIO, ENOSPC}},
    {"rename", {ENOSPC, EACCES}},
    {"close", {EIO, EDQUOT}},
    {"ftruncate", {EIO}},
    {"mmap", {ENOMEM}},
    {"stat", {EIO}},
    {"unlink", {EACCES}},
    {"flock", {ENOLCK}},
    {"getrandom", {ENOSYS}},
    {"fchmod", {EPERM}},
    {"access", {EIO}},
    {"mkdir", {ENOSPC}},
    {"rmdir", {EIO}}};

// A command that succeeds if a folder of checkpoints holds anything else.
std::string leftovers(const std::string &checkpoints) {
  return "ls -A " + checkpoints + " | grep '^[.]' | grep -vx '[.]lock'";
}

struct Fault {
  std::string call;
  int64_t at;
  int code;
};

class Faults : public Program {
protected:
  Outcome runWith(const std::string &variables,
                  const std::string &flags =
                      "--steps 2 --log log --save out.safetensors --trace "
                      "t.json --save-gradients g.safetensors") {
    return shell("timeout 30 env LD_PRELOAD=" FAULT_SHIM " " + variables +
                 " " TOY_PROGRAM " --data ids=ids.npy --data "
                 "target=target.npy --threads 1 " +
                 flags);
  }
  // Runs two ranks as processes of their own, in a group of their own. Returns
  // when the lock of their folder is free, since processes that are killed
  // together need not end together.
  Outcome pair(const std::string &first, const std::string &second,
               const std::string &flags) {
    static int port = 13000 + getpid() % 7000;
    ++port;
    std::string script;
    for (const std::string *variables : {&first, &second})
      script += std::string("env RANK=") + (variables == &first ? "0" : "1") +
                " WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=" +
                std::to_string(port) +
                " LD_PRELOAD=" FAULT_SHIM " FAULT_PATH=checkpoints " +
                *variables +
                " " TOY_PROGRAM " --data ids=ids.npy --data target=target.npy "
                "--threads 1 " +
                flags + " & pids=\"$pids $!\"\n";
    folder.write("job", script + "for pid in $pids; do wait $pid || code=$?; "
                                 "done\nexit $code\n");
    return shell("timeout 60 setsid sh job; code=$?; "
                 "flock checkpoints/.lock true; exit $code");
  }
  // Returns the faults of every call that a run counted.
  std::vector<Fault> countedFaults() {
    std::vector<Fault> faults;
    std::istringstream counts(folder.read("counts"));
    std::string call;
    for (int64_t count; counts >> call >> count;)
      for (int64_t at = 1; at <= count; ++at)
        for (int code : codes.at(call))
          faults.push_back({call, at, code});
    return faults;
  }
  void writeOld() {
    for (const char *name : {"out.safetensors", "g.safetensors", "t.json"})
      folder.write(name, "old");
    folder.write("log", "{\"old\":1}\n");
  }
  // Returns the bytes before the tensors of a safetensors file.
  static int64_t headerBytes(const std::filesystem::path &path) {
    uint64_t length = 0;
    std::ifstream(path, std::ios::binary)
        .read(reinterpret_cast<char *>(&length), sizeof length);
    return int64_t(sizeof length + length);
  }
  bool isSaved(const std::string &name) {
    return bool(fsdpc::runtime::SafeTensors::open(folder / name));
  }

  // Returns what is wrong with the state after a run, or an empty string.
  std::string wrong(const Outcome &outcome, bool unlinks) {
    if (outcome.code != 0 && outcome.code != 3)
      return "its exit code is " + std::to_string(outcome.code);
    if (outcome.errors() != (outcome.code == 3))
      return "it has " + std::to_string(outcome.errors()) + " errors";
    for (const char *name : {"out.safetensors", "g.safetensors"})
      if (!isSaved(name) && (outcome.code == 0 || folder.read(name) != "old"))
        return std::string(name) + " is not as it should be";
    std::string trace = folder.read("t.json");
    if (trace == "old" ? outcome.code == 0 &&
                             outcome.err.find("warning: ") == std::string::npos
                       : !nlohmann::json::accept(trace))
      return "t.json is not as it should be";
    std::istringstream lines(folder.read("log"));
    for (std::string line; std::getline(lines, line);)
      if (!nlohmann::json::accept(line))
        return "the log has the line " + line;
    // A complete file that only lacks its name stays, and is named.
    Outcome left = shell("ls -A | grep tmp-");
    bool named = left.out.size() > 1 &&
                 outcome.err.find("what was to be saved is in '" +
                                  left.out.substr(0, left.out.size() - 1)) !=
                     std::string::npos;
    if (left.code == 0 && !unlinks && !named)
      return "a temporary file is left";
    return "";
  }
};

// Draws the sample. A test that fails prints its fault, so it can be repeated.
template <class Any>
std::vector<Any> sampled(std::vector<Any> faults, size_t most = 40) {
  const char *wanted = std::getenv("FSDPC_FAULTS");
  if (wanted && std::string(wanted) == "all")
    return faults;
  std::string commit;
  if (FILE *git = popen("git -C " SOURCE_FOLDER " rev-parse HEAD 2>&1", "r")) {
    for (int c; (c = fgetc(git)) != EOF;)
      commit += char(c);
    pclose(git);
  }
  std::seed_seq seed(commit.begin(), commit.end());
  std::mt19937 random(seed);
  std::shuffle(faults.begin(), faults.end(), random);
  if (faults.size() > most)
    faults.erase(faults.begin() + std::ptrdiff_t(most), faults.end());
  return faults;
}

// Whichever call of a run fails: no file is ever half of each.
TEST_F(Faults, EveryFileIsTheOldOneOrTheNewOne) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  Outcome counted = runWith("FAULT_COUNTS=counts");
  ASSERT_EQ(counted.code, 0) << counted.err;
  std::vector<Fault> faults = countedFaults();
  EXPECT_GT(faults.size(), 100u);
  for (const Fault &fault : sampled(faults)) {
    std::string variables = "FAULT_CALL=" + fault.call +
                            " FAULT_AT=" + std::to_string(fault.at) +
                            " FAULT_ERRNO=" + std::to_string(fault.code);
    writeOld();
    Outcome outcome = runWith(variables);
    EXPECT_EQ(wrong(outcome, fault.call == "unlink"), "") << variables << "\n"
                                                          << outcome.err;
    shell("rm -f .*.tmp-*");
  }
}

// A read that fails may succeed later: the run goes on, and says so once. A
// disk that stays bad ends it, with the name of the file and the byte.
TEST_F(Faults, ReadsOfDataAreTriedAgain) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  const std::string onIds = "FAULT_PATH=/ids.npy FAULT_CALL=read ";
  ASSERT_EQ(runWith("", "--steps 2 --save whole").code, 0);
  for (int code : {EIO, ESTALE, EAGAIN}) {
    Outcome passed =
        runWith(onIds + "FAULT_AT=7 FAULT_ERRNO=" + std::to_string(code),
                "--steps 2 --save out");
    EXPECT_EQ(passed.code, 0) << passed.err;
    EXPECT_THAT(passed.err, HasSubstr("ids.npy' at byte "));
    EXPECT_THAT(passed.err, HasSubstr("; trying again"));
    EXPECT_EQ(folder.read("out"), folder.read("whole"));
  }
  Outcome stays = runWith(onIds + "FAULT_FROM=7 FAULT_ERRNO=5", "--steps 2");
  EXPECT_EQ(stays.code, 3);
  EXPECT_EQ(stays.errors(), 1);
  EXPECT_THAT(stays.err, HasSubstr("error: cannot read 'ids.npy' at byte "));
  EXPECT_THAT(stays.err, HasSubstr("(tried 4 times)"));
  EXPECT_EQ(stays.err.find("trying again"), stays.err.rfind("trying again"));
  // What cannot pass is not tried again.
  Outcome refused = runWith(onIds + "FAULT_FROM=7 FAULT_ERRNO=1", "--steps 2");
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err, Not(HasSubstr("tried")));
}

// A machine may have more cores than a cpu_set_t, whose 1024 bits its kernel
// then refuses, or more than the runtime knows of.
TEST_F(Faults, MachinesMayHaveManyCores) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  for (auto &[cores, list] :
       {std::pair("2000", "1998-1999"), std::pair("100000", "")}) {
    Outcome outcome = runWith(std::string("FAULT_CPUS=") + cores);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    ASSERT_FALSE(log().empty());
    EXPECT_EQ(log()[0]["cores"], list);
    EXPECT_EQ(log()[0]["ranks"], 1);
  }
}

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
    EXPECT_TRUE(outcome.code == 0 || outcome.code == 3) << variables;
    EXPECT_EQ(outcome.errors(), outcome.code == 3) << outcome.err;
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
  EXPECT_THAT(none, HasSubstr("adds up to 1 checkpoint of "));
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
    EXPECT_THAT(text, HasSubstr(std::to_string(checkpoints) + " checkpoint"))
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

// Rank 0 writes the log. If that is slow, the other rank waits for it, and only
// it is named.
TEST_F(Faults, ASlowRankIsNamed) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  Outcome outcome = runWith("FAULT_PATH=/log FAULT_CALL=write FAULT_FROM=1 "
                            "FAULT_SLEEP=40",
                            "--steps 26 --ranks 2 --log log");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: rank 0 on host '"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("warning: rank 1")));
}

// A log or a trace that cannot be written costs a warning, not the weights.
TEST_F(Faults, WhatMattersMostIsSaved) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  writeOld();
  // The header is the first line, step 0 the second one.
  Outcome outcome =
      runWith("FAULT_CALL=write FAULT_PATH=/log FAULT_FROM=3 FAULT_ERRNO=28");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: cannot write 'log': No space "
                                     "left on device; the run goes on, and its "
                                     "log ends before step 1"));
  EXPECT_TRUE(isSaved("out.safetensors"));
  EXPECT_EQ(log().size(), 2u);
  writeOld();
  outcome =
      runWith("FAULT_CALL=write FAULT_PATH=t.json FAULT_FROM=1 FAULT_ERRNO=28");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("warning: cannot save 't.json': No space "
                                     "left on device; the run has no trace"));
  EXPECT_TRUE(isSaved("out.safetensors"));
  EXPECT_EQ(folder.read("t.json"), "old");
  EXPECT_EQ(outcome.errors(), 0);
}

} // namespace
