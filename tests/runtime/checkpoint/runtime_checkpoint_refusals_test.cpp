// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Folders of checkpoints that a run does not take as they are: damaged,
// foreign, of a later version, of another run, or left by one that was killed.
#include "runtime/checkpoint/checkpoint_reader.h"
#include "tests/runtime/checkpoint/runtime_checkpoints.h"

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace {

TEST_F(Checkpoints, DamageIsNamedAndTheOneBeforeTaken) {
  std::string flags = "--steps 6 --ranks 2 --checkpoint c" + common;
  ASSERT_EQ(run(flags + "--checkpoint-every 2").code, 0);
  shell("rm -rf whole && cp -r c whole");
  const std::string newest = "c/step-0000006/",
                    file = newest + "rank-00001.safetensors";
  const std::string harm[] = {
      "rm " + file,
      "rm " + newest + "checkpoint.json",
      "truncate -s -4 " + file,
      "truncate -s 100 " + newest + "checkpoint.json",
      "bash -c 'printf x | dd conv=notrunc bs=1 seek=900 of=" + file + "'",
      "cp c/step-0000004/rank-00001.safetensors " + newest,
      "sed -i 's/\"step\":6/\"step\":7/' " + newest + "checkpoint.json"};
  for (const std::string &command : harm) {
    shell("rm -rf c && cp -r whole c");
    ASSERT_EQ(shell(command).code, 0);
    Outcome outcome = run(flags + "--resume");
    EXPECT_EQ(outcome.code, 0) << command << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("warning: ")) << command;
    EXPECT_THAT(outcome.err, HasSubstr("c/step-0000006/")) << command;
    EXPECT_THAT(outcome.err, HasSubstr("resuming from 'c/step-0000004'"))
        << command;
    // The one that is damaged is replaced.
    outcome = run(flags + "--resume");
    EXPECT_THAT(outcome.err, HasSubstr("resuming from 'c/step-0000006'"));
    EXPECT_EQ(outcome.code, 0);
  }
  // If none is whole, the run does not start over.
  shell("rm c/step*/rank-00000.safetensors");
  Outcome outcome = run(flags + "--resume");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("error: no checkpoint in 'c' is whole"));
}

// Readers go by the name, so it may not say another step than the manifest.
TEST_F(Checkpoints, ACopyUnderAnotherStepIsRefused) {
  ASSERT_EQ(run("--steps 2 --checkpoint c" + common).code, 0);
  shell("cp -r c/step-0000002 c/step-0000009; cp -r c/step-0000002 c/best");
  for (const char *path : {"c/step-0000009", "c/step-0000009/"}) {
    auto opened = TrainingCheckpoint::open(folder / path);
    ASSERT_FALSE(opened);
    EXPECT_THAT(opened.error().message,
                HasSubstr("holds the checkpoint of step 2"));
  }
  for (const char *path : {"c/step-0000002", "c/best"})
    EXPECT_TRUE(TrainingCheckpoint::open(folder / path));
}

// A checkpoint of a later version is not a damaged one: going back to the one
// before it would throw steps away, so the run is refused.
TEST_F(Checkpoints, ALaterFormatIsRefused) {
  std::string flags = "--steps 6 --checkpoint c" + common;
  ASSERT_EQ(run(flags + "--checkpoint-every 3").code, 0);
  const std::string manifest = "c/step-0000006/checkpoint.json";
  ASSERT_EQ(shell("sed -i 's/{\"format\":1,/{\"format\":6,/' " + manifest).code,
            0);
  for (const char *resume : {"--resume", "--resume=6"}) {
    Outcome outcome = run(flags + resume);
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("error: '" + manifest +
                                       "' has format 6, but this program reads "
                                       "formats 1 to 5; "));
    EXPECT_THAT(outcome.err, Not(HasSubstr("damaged")));
  }
  EXPECT_THAT(names("c"), ElementsAre(".lock", "step-0000003", "step-0000006"));
  EXPECT_EQ(run(flags + "--resume=3").code, 0);
}

// A checkpoint in place of the folder that holds it: the run does not begin at
// step 0 in there.
TEST_F(Checkpoints, ACheckpointIsNoFolderOfThem) {
  ASSERT_EQ(run("--steps 2 --checkpoint c").code, 0);
  shell("mkdir dcp && touch dcp/.metadata dcp/__0_0.distcp");
  for (auto &[path, message] :
       {std::pair("c/step-0000002", "is a checkpoint, not a folder of them; "),
        std::pair("dcp", "is a checkpoint of PyTorch; ")}) {
    std::vector<std::string> before = names(path);
    for (const char *resume : {"", " --resume"}) {
      Outcome outcome =
          run(std::string("--steps 4 --checkpoint ") + path + resume);
      EXPECT_EQ(outcome.code, 1) << outcome.err;
      EXPECT_EQ(outcome.errors(), 1) << outcome.err;
      EXPECT_THAT(outcome.err,
                  HasSubstr("error: '" + std::string(path) + "' " + message));
    }
    EXPECT_EQ(names(path), before);
  }
}

// A file that this user may not read does not count as damaged.
TEST_F(Checkpoints, AnUnreadableOneIsRefused) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  const std::string flags = "--steps 6 --ranks 2 --checkpoint c --resume ";
  ASSERT_EQ(run(flags + "--checkpoint-every 3").code, 0);
  for (const char *file : {"checkpoint.json", "rank-00001.safetensors"}) {
    std::string path = std::string("c/step-0000006/") + file;
    Outcome outcome =
        run(flags, "LD_PRELOAD=" FAULT_SHIM " FAULT_CALL=access FAULT_FROM=1 "
                   "FAULT_ERRNO=13 FAULT_PATH=" + // EACCES
                       path);
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err,
                HasSubstr("error: no permission to read '" + path + "'; "));
  }
  EXPECT_THAT(names("c"), ElementsAre(".lock", "step-0000003", "step-0000006"));
}

TEST_F(Checkpoints, MistakesAreRefused) {
  ASSERT_EQ(run("--steps 2 --checkpoint c").code, 0);
  folder.write("file", "");
  struct {
    const char *environment, *flags, *message;
    int code;
  } cases[] = {
      {"", "--checkpoint c",
       "'c' has checkpoints already, the newest of step "
       "2; continue with --resume",
       1},
      {"", "--checkpoint c --resume=1",
       "'c' has no checkpoint of step 1; the newest is of step 2", 1},
      {"", "--checkpoint file", "'file", 1},
      {"", "--checkpoint none/c", "cannot make the folder 'none/c'", 1},
      {"", "--resume", "--resume needs --checkpoint DIR", 2},
      {"", "--checkpoint c --resume=x", "'x' is not a whole number", 2},
      {"", "--keep 2", "--keep needs --checkpoint DIR", 2},
      {"", "--checkpoint c --keep-every 2", "--keep-every needs --keep K", 2},
      {"", "--after-checkpoint ls", "--after-checkpoint needs --checkpoint", 2},
      {"", "--checkpoint c --checkpoint-every 0", "'0' is not a whole", 2},
  };
  for (auto &[environment, flags, message, code] : cases) {
    Outcome outcome = run(std::string("--steps 4 ") + flags, environment);
    EXPECT_EQ(outcome.code, code) << flags << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
  EXPECT_THAT(names("c"), ElementsAre(".lock", "step-0000002"));
}

// A run that is refused leaves no folder, whatever was wrong. One that was
// there stays, and so does one in which the run has written something else.
TEST_F(Checkpoints, ARefusedRunLeavesNoFolder) {
  const std::string flags = " --steps 2 --checkpoint c";
  std::string before = shell("ls -A").out;
  auto refused = [&](const Outcome &outcome, int code = 1) {
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
  };
  for (const char *wrong :
       {"--init none.safetensors", "--resume=7", "--accumulate 41"}) {
    refused(run(wrong + flags));
    EXPECT_EQ(shell("ls -A").out, before) << wrong;
  }
  refused(mpi(2, "--accumulate 30" + flags));
  refused(run("--log c/log --accumulate 41" + flags));
  EXPECT_EQ(shell("ls -A").out, before);
  folder.write("ids.npy", npy<int64_t>("<i8", "(40, 3)", 120)); // up to 119
  refused(run("--log c/log --accumulate 2" + flags));
  EXPECT_THAT(names("c"), ElementsAre("log"));
  ASSERT_EQ(shell("rm c/log").code, 0);
  refused(run("--accumulate 2" + flags));
  EXPECT_THAT(names("c"), ElementsAre(".lock"));
}

// The leftovers of a killed run are removed, and a checkpoint that had made
// room gets its name back.
TEST_F(Checkpoints, LeftoversOfAKilledRunAreCleared) {
  ASSERT_EQ(run("--steps 2 --checkpoint c").code, 0);
  shell("mkdir c/.step-0000004 c/.step-0000001.removed && "
        "touch c/.step-0000004/rank-00000.safetensors && "
        "mv c/step-0000002 c/.step-0000002.replaced");
  Outcome outcome = run("--steps 2 --checkpoint c --resume");
  EXPECT_THAT(outcome.err, HasSubstr("resuming from 'c/step-0000002'"));
  EXPECT_THAT(names("c"), ElementsAre(".lock", "step-0000002"));
}

// One bit in each block of 4 KiB, in every file of a checkpoint.
TEST_F(Checkpoints, AFlippedBitInAnyBlockIsFound) {
  ASSERT_EQ(run("--steps 1 --ranks 2 --checkpoint c").code, 0);
  const std::string whole = "c/step-0000001";
  auto isWhole = [&] {
    auto opened = TrainingCheckpoint::open(folder / whole);
    return opened && opened->verify(0, 1);
  };
  ASSERT_TRUE(isWhole());
  for (const std::string &name : names(whole)) {
    std::string file = whole + "/" + name, bytes = folder.read(file);
    for (size_t block = 0; block < bytes.size(); block += 4096) {
      std::string flipped = bytes;
      size_t at = std::min(block + block / 4096 * 37 % 4096, bytes.size() - 1);
      flipped[at] = char(flipped[at] ^ 1 << block / 4096 % 8);
      folder.write(file, flipped);
      EXPECT_FALSE(isWhole()) << file << " byte " << at;
    }
    folder.write(file, bytes);
  }
  EXPECT_TRUE(isWhole());
}

// A folder belongs to one run at a time. The lock names the process that holds
// it, and ends with that process: the text that a killed run leaves locks
// nobody out.
TEST_F(Checkpoints, TwoRunsDoNotShareAFolder) {
  const std::string program =
      TOY_PROGRAM " --data ids=ids.npy --data target=target.npy ";
  Outcome outcome =
      shell("( " + program +
            "--steps 100000000 --checkpoint c --log log & pid=$!; echo $pid "
            ">pid; for i in $(seq 200); do [ $(wc -l <log) -gt 2 ] 2>/dev/null "
            "&& break; sleep 0.05; done; " +
            program +
            "--steps 1 --checkpoint c --resume; code=$?; kill -KILL $pid; wait "
            "$pid; exit $code )");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_EQ(outcome.errors(), 1) << outcome.err;
  std::string pid = folder.read("pid");
  pid.pop_back(); // the end of the line
  EXPECT_THAT(outcome.err,
              HasSubstr("error: another run writes its checkpoints to 'c' "
                        "(process " +
                        pid + " on "));
  EXPECT_THAT(folder.read("c/.lock"), HasSubstr("process " + pid));
  outcome = run("--steps 1 --checkpoint c --resume");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("'c' has no checkpoint yet"));
  EXPECT_THAT(folder.read("c/.lock"), Not(HasSubstr("process " + pid)));
}

// A folder that holds what is no checkpoint of ours: a run that resumes names
// it and does not start over, and nothing that it did not write goes.
TEST_F(Checkpoints, AForeignFolderIsNotTaken) {
  const std::string whole = "--steps 2 --checkpoint c";
  ASSERT_EQ(run(whole).code, 0);
  const std::string newest = "c/step-0000009";
  struct {
    std::string harm, flags, message;
    int code;
  } cases[] = {
      // Another program's checkpoint.
      {"mkdir " + newest + " && echo x >" + newest + "/model.bin", "--resume=9",
       newest + "/checkpoint.json", 1},
      {"touch " + newest, "--resume=9", newest + "/checkpoint.json", 1},
      {"cp -r c/step-0000002 " + newest + " && rm " + newest +
           "/checkpoint.json && mkdir " + newest + "/checkpoint.json",
       "--resume=9", newest + "/checkpoint.json", 1},
      // A copy under the name of another step.
      {"cp -r c/step-0000002 " + newest, "--resume=9", newest, 1},
      {"rm -r c/step-0000002 && mkdir " + newest, "--resume",
       "no checkpoint in 'c' is whole", 1},
      // Names that are none of a checkpoint.
      {"rm -r c/step-0000002 && mkdir c/step-9 c/step-old && touch c/photo",
       "--resume", "'c' has no checkpoint yet", 0},
  };
  shell("cp -r c old");
  for (auto &[harm, flags, message, code] : cases) {
    shell("rm -rf c && cp -r old c");
    ASSERT_EQ(shell(harm).code, 0) << harm;
    std::vector<std::string> before = names("c");
    Outcome outcome = run("--steps 4 --checkpoint c " + flags);
    EXPECT_EQ(outcome.code, code) << harm << outcome.err;
    EXPECT_EQ(outcome.errors(), code != 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << harm;
    for (const std::string &name : before)
      EXPECT_TRUE(std::filesystem::exists(folder / ("c/" + name))) << name;
  }
}

} // namespace
