// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Folders of checkpoints that hold links and files of others. Whatever removes
// a checkpoint removes its own files and no link's target.
#include "tests/runtime/checkpoint/runtime_checkpoints.h"

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace {

class CheckpointLinks : public Checkpoints {
protected:
  // Writes the checkpoints 1 to 3 to `c`, and a folder `v` of the user that
  // also holds files with the names of a checkpoint's.
  void SetUp() override {
    ASSERT_EQ(run("--steps 3 --checkpoint c --checkpoint-every 1").code, 0);
    shell("mkdir v && echo thesis >v/thesis && cp c/step-0000001/* v && "
          "cp v/rank-00000.safetensors v/.rank-00000.safetensors.tmp-"
          "0123456789abcdef && cp -r c old && cp -r v before");
  }
  void restore() { shell("rm -rf c v && cp -r old c && cp -r before v"); }
  // The user's folder has all of its files, with their bytes.
  bool isUntouched() { return shell("diff -r before v").code == 0; }
};

// ---- links ----

// Each link leads to the user's folder from a name that some run removes or
// replaces.
TEST_F(CheckpointLinks, AreRemovedAndNotFollowed) {
  struct {
    const char *link, *flags;
    bool stays;
  } cases[] = {
      // At the start of a run.
      {"c/.step-0000009", "--steps 4 --resume", false},
      {"c/.step-0000004", "--steps 4 --resume", false},
      {"c/.step-0000009.removed", "--steps 4 --resume", false},
      {"c/.step-0000003.replaced", "--steps 4 --resume", false},
      // Names that no run gives.
      {"c/.step-x", "--steps 4 --resume", true},
      {"c/.step-9", "--steps 4 --resume", true},
      {"c/.rank-x", "--steps 4 --resume", true},
      // By --keep.
      {"c/step-0000000", "--steps 4 --resume --keep 2", false},
      // Of a course that the run has left.
      {"c/step-0000009", "--steps 4 --resume=3", false},
      // In the place of the new checkpoint.
      {"c/step-0000004", "--steps 4 --resume=3", false},
  };
  for (auto &[link, flags, stays] : cases) {
    restore();
    ASSERT_EQ(shell(std::string("ln -s ../v ") + link).code, 0);
    Outcome outcome = run(std::string("--checkpoint c ") + flags);
    EXPECT_EQ(outcome.code, 0) << link << outcome.err;
    EXPECT_TRUE(isUntouched()) << link;
    EXPECT_EQ(std::filesystem::is_symlink(folder / link), stays) << link;
    EXPECT_TRUE(std::filesystem::is_directory(folder / "c/step-0000004"));
    EXPECT_THAT(outcome.err, Not(HasSubstr("warning: cannot"))) << link;
  }
}

// A checkpoint that had made room, and was a link, gets its name back.
TEST_F(CheckpointLinks, AReplacedOneKeepsItsName) {
  shell("mv c/step-0000003 moved && ln -s ../moved c/.step-0000003.replaced");
  Outcome outcome = run("--steps 3 --checkpoint c --resume");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("resuming from 'c/step-0000003'"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "c/step-0000003"));
  EXPECT_THAT(names("moved"),
              ElementsAre("checkpoint.json", "rank-00000.safetensors"));
}

// Files inside of a checkpoint may be links too, also under the names of
// temporary files.
TEST_F(CheckpointLinks, InACheckpointAreRemovedThemselves) {
  for (const char *file : {"rank-00000.safetensors", "checkpoint.json",
                           ".rank-00000.safetensors.tmp-0123456789abcdef",
                           ".checkpoint.json.tmp-0123456789abcdef"}) {
    restore();
    ASSERT_EQ(
        shell(std::string("cd c/step-0000001 && ln -sf ../../v/thesis ") + file)
            .code,
        0);
    Outcome outcome = run("--steps 4 --checkpoint c --resume --keep 2");
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(isUntouched()) << file;
    EXPECT_THAT(names("c"),
                ElementsAre(".lock", "step-0000003", "step-0000004"))
        << file << outcome.err;
  }
}

// Hard links are names of the same file, as in a snapshot by `cp -al`: no run
// writes into a file that is there.
TEST_F(CheckpointLinks, HardLinksKeepTheirBytes) {
  shell("cp -al c snapshot");
  Outcome outcome = run("--steps 5 --checkpoint c --checkpoint-every 1 "
                        "--resume=2 --keep 1");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(names("c"), ElementsAre(".lock", "step-0000005"));
  EXPECT_EQ(shell("diff -r -x .lock old snapshot").code, 0);
}

// ---- the lock ----

// A file of the user under the lock's name is not written to.
TEST_F(CheckpointLinks, OnlyALockIsOverwritten) {
  for (const char *command :
       {"ln -f v/thesis c/.lock", "ln -sf ../v/thesis c/.lock",
        "cp v/thesis c/.lock", "rm c/.lock && mkdir c/.lock",
        "rm c/.lock && mkfifo c/.lock"}) {
    restore();
    ASSERT_EQ(shell(command).code, 0);
    Outcome outcome = run("--steps 4 --checkpoint c --resume");
    EXPECT_EQ(outcome.code, 1) << command << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("'c/.lock'")) << command;
    EXPECT_TRUE(isUntouched()) << command;
    EXPECT_EQ(shell("diff -r -x .lock old c").code, 0) << command;
  }
}

// ---- files of others ----

// What somebody has put into a checkpoint stays when that goes, together with
// the folder, and a warning says where. The rest goes.
TEST_F(CheckpointLinks, FilesOfOthersAreKept) {
  struct {
    const char *where, *flags;
  } cases[] = {
      {"c/step-0000001", "--steps 4 --resume --keep 2"}, // by --keep
      {"c/step-0000003",
       "--steps 4 --resume=2 --checkpoint-every 1"}, // replaced
      {"c/.step-0000004", "--steps 4 --resume"},     // by the start of a run
      {"c/.step-0000002.removed", "--steps 4 --resume"},
  };
  for (auto &[where, flags] : cases)
    for (const char *file : {"notes.txt", "rank-00009.safetensors",
                             ".rank-00000.safetensors.tmp-x", "sub/notes.txt",
                             "checkpoint.json.bak"}) {
      restore();
      std::string at = where, own = at + "/" + file;
      shell("mkdir -p " + at + " && cp v/rank* v/*.json " + at +
            " && mkdir -p $(dirname " + own + ") && echo mine >" + own);
      Outcome outcome = run(std::string("--checkpoint c ") + flags);
      EXPECT_EQ(outcome.code, 0) << own << outcome.err;
      std::string title = at.substr(at.find("step-"), 12),
                  kept = "c/" + title + ".kept/" + title;
      EXPECT_THAT(outcome.err, HasSubstr("warning: 'c/" + title +
                                         "' was to be "
                                         "removed, but '"));
      EXPECT_THAT(outcome.err, HasSubstr("it is now in '" + kept + "'"));
      EXPECT_EQ(folder.read(kept + "/" + file), "mine\n") << own;
      EXPECT_THAT(names(kept), ElementsAre(std::string(file).substr(
                                   0, std::string(file).find('/'))))
          << own;
      // The next run has nothing left to do.
      outcome = run("--steps 4 --checkpoint c --resume");
      EXPECT_EQ(outcome.code, 0) << own << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr("nothing to train: 4 steps are done"));
      EXPECT_NE(shell(leftovers("c")).code, 0) << own;
    }
}

// A folder of another program, and a file, under the name of a checkpoint.
TEST_F(CheckpointLinks, StrangersMakeRoom) {
  shell("mkdir c/step-0000004 c/step-0000004.kept c/.step-0000005 && "
        "echo x >c/step-0000004/model.bin && echo y >c/step-0000005");
  Outcome outcome = run("--steps 5 --checkpoint c --checkpoint-every 1 "
                        "--resume");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(folder.read("c/step-0000004.kept-2/step-0000004/model.bin"), "x\n");
  EXPECT_EQ(folder.read("c/step-0000005.kept/step-0000005"), "y\n");
  EXPECT_THAT(names("c"),
              ElementsAre(".lock", "step-0000001", "step-0000002",
                          "step-0000003", "step-0000004", "step-0000004.kept",
                          "step-0000004.kept-2", "step-0000005",
                          "step-0000005.kept"));
}

// Names in the folder that resemble those of a run.
TEST_F(CheckpointLinks, NamesOfOthersStay) {
  shell("cd c && mkdir .step-notes .step-0000009.old .rank-00000.safetensors."
        "tmp-0123456789abcdef step-notes && touch .rank-notes "
        ".rank-00000.safetensors.tmp-backup .step-notes/x step-0000007.zip");
  std::vector<std::string> before = names("c");
  Outcome outcome = run("--steps 3 --checkpoint c --resume");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(names("c"), before);
  // What a rank leaves that is killed while it tries whether it can write.
  shell("touch c/.rank-00001.safetensors.tmp-0123456789abcdef");
  EXPECT_EQ(run("--steps 3 --checkpoint c --resume").code, 0);
  EXPECT_EQ(names("c"), before);
}

} // namespace
