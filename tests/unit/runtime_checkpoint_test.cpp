// Checkpoints, on the toy program: a run that is resumed has the bits of one
// that was never stopped, on other ranks its losses; damage is found and named;
// what fails leaves the checkpoint before it whole.
#include "runtime/core/checkpoint_reader.h"
#include "tests/unit/runtime_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace {

class Checkpoints : public Program {
protected:
  // The names in a folder, in order.
  std::vector<std::string> names(const std::string &at) {
    std::vector<std::string> found;
    for (auto &entry : std::filesystem::directory_iterator(folder / at))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  void clear() {
    std::filesystem::remove_all(folder / "c");
    std::filesystem::remove(folder / "out.safetensors");
  }
  // Losses by step; a resumed run has those from its first step on.
  std::vector<double> losses() {
    std::vector<double> found;
    for (const nlohmann::json &line : log())
      if (line.contains("loss"))
        found.push_back(line["loss"]);
    return found;
  }
};

const std::string common =
    " --threads 1 --shuffle --seed 3 --lr-schedule=cosine,warmup=3" +
    std::string(" --log log --save out.safetensors ");

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
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("error: no checkpoint in 'c' is whole"));
}

// A checkpoint of a later version is not a damaged one: going back to the one
// before it would throw steps away, so the run is refused.
TEST_F(Checkpoints, ALaterFormatIsRefused) {
  std::string flags = "--steps 6 --checkpoint c" + common;
  ASSERT_EQ(run(flags + "--checkpoint-every 3").code, 0);
  const std::string manifest = "c/step-0000006/checkpoint.json";
  ASSERT_EQ(shell("sed -i 's/{\"format\":1,/{\"format\":3,/' " + manifest).code,
            0);
  for (const char *resume : {"--resume", "--resume=6"}) {
    Outcome outcome = run(flags + resume);
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("error: '" + manifest +
                                       "' has format 3, but this program reads "
                                       "formats 1 to 2; "));
    EXPECT_THAT(outcome.err, Not(HasSubstr("damaged")));
  }
  EXPECT_THAT(names("c"), ElementsAre(".lock", "step-0000003", "step-0000006"));
  EXPECT_EQ(run(flags + "--resume=3").code, 0);
}

// --steps counts from the first step ever, not from where a run resumes.
TEST_F(Checkpoints, StepsCountFromTheStartOfTraining) {
  std::string flags = "--checkpoint c" + common;
  Outcome outcome = run("--steps 3 --resume " + flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("'c' has no checkpoint yet: starting at "
                                     "step 0"));
  std::string saved = folder.read("out.safetensors");
  std::filesystem::remove(folder / "out.safetensors");
  outcome = run("--steps 2 --resume " + flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("nothing to train: 3 steps are done"));
  EXPECT_EQ(folder.read("out.safetensors"), saved);
}

// Of five checkpoints the two newest stay.
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
  int64_t total = log()[0]["plan"]["total"];
  EXPECT_FALSE(log()[0]["plan"].contains("checkpoint"));
  clear();
  const std::string flags =
      "--steps 2 --threads 1 --log log --checkpoint c --checkpoint-every 1";
  ASSERT_EQ(run(flags).code, 0);
  int64_t copy = log()[0]["plan"].value("checkpoint", 0);
  EXPECT_GT(copy, 0);
  EXPECT_EQ(log()[0]["plan"]["total"], total + copy);
  EXPECT_THAT(run("--info --checkpoint c --checkpoint-every 1").out,
              HasSubstr("\n  checkpoint  "));
  EXPECT_THAT(run("--info").out, Not(HasSubstr("\n  checkpoint  ")));
  clear();
  Outcome outcome = run(flags, "TOY_LIMIT=" + std::to_string(total + copy - 1));
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("does not fit in the --memory-limit"));
  EXPECT_EQ(log()[0]["plan"]["total"], total);
  EXPECT_THAT(names("c"), ElementsAre(".lock", "step-0000001", "step-0000002"));
  clear();
  outcome = run(flags, "TOY_LIMIT=" + std::to_string(total + copy));
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

// Each mistake in a flag or a folder ends the run before it trains.
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
       3},
      {"", "--checkpoint c --resume=1",
       "'c' has no checkpoint of step 1; the newest is of step 2", 3},
      {"", "--checkpoint file", "'file", 3},
      {"", "--checkpoint none/c", "cannot make the folder 'none/c'", 3},
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
  auto refused = [&](const Outcome &outcome) {
    EXPECT_EQ(outcome.code, 3) << outcome.err;
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

// ---- manifests ----

CheckpointManifest small() {
  CheckpointManifest stored;
  stored.ranks = 2;
  Member member;
  member.name = "w";
  member.shape = {3};
  member.elements = 3;
  stored.layouts = {{"unit", 2, 1, {member}}};
  stored.files = {{1, {2, 3}}, {4, {5, 6}}};
  return stored;
}

// And sizes of files follow from what the manifest says.
TEST(CheckpointManifest, ReadsBackAndChecksSizes) {
  CheckpointManifest stored = small();
  stored.state = {7, 70, {0.125f, 3, 2}};
  stored.layouts[0].optimizer = "lamb";
  auto read = parseCheckpoint(toJson(stored));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->state.step, 7);
  EXPECT_EQ(read->state.sample, 70);
  EXPECT_EQ(read->state.scaler.scale, 0.125f);
  EXPECT_EQ(read->state.scaler.inARow, 3);
  EXPECT_EQ(read->state.scaler.skips, 2);
  EXPECT_EQ(read->files[1].tensors, stored.files[1].tensors);
  EXPECT_EQ(read->layouts[0].optimizer, "lamb");
  // With a right checksum, too: whoever wrote the file can compute it.
  auto refused = [](auto change) {
    CheckpointManifest hostile = small();
    change(hostile);
    return !parseCheckpoint(toJson(hostile));
  };
  EXPECT_TRUE(refused([](auto &m) { m.ranks = 0; }));
  EXPECT_TRUE(refused([](auto &m) { m.ranks = 3; }));
  EXPECT_TRUE(refused([](auto &m) { m.layouts[0].shard = 1; }));
  EXPECT_TRUE(refused([](auto &m) { m.layouts[0].shard = INT64_MAX; }));
  EXPECT_TRUE(refused([](auto &m) { m.layouts[0].states = 99; }));
  EXPECT_TRUE(refused([](auto &m) {
    m.layouts[0].states = 0;
    m.layouts[0].average = true;
  }));
  EXPECT_TRUE(
      refused([](auto &m) { m.layouts[0].members[0].offset = INT64_MAX; }));
  EXPECT_TRUE(refused([](auto &m) { m.layouts[0].members[0].offset = -1; }));
  EXPECT_TRUE(refused([](auto &m) {
    m.layouts[0].members[0].shape = {int64_t(1) << 40, int64_t(1) << 40};
  }));
  for (const char *text : {"", "{}", "[", "{\"format\":2}", "[[[["})
    EXPECT_FALSE(parseCheckpoint(text)) << text;
}

// Each message says in words what is wrong and where, without those of the JSON
// library.
TEST(CheckpointManifest, FaultsAreNamed) {
  auto fault = [](const std::string &text) {
    auto parsed = parseCheckpoint(text);
    return parsed ? "none" : parsed.error().message;
  };
  const std::string text = toJson(small());
  EXPECT_EQ(fault(""), "it is empty");
  EXPECT_EQ(fault("[]"), "it has no 'format'");
  EXPECT_EQ(fault("{\"format\":\"1\"}"),
            "'format' is \"1\", not a whole number from 0 to " +
                std::to_string(INT64_MAX));
  EXPECT_EQ(fault("{\"format\":1}"), "it has no 'checkpoint'");
  EXPECT_EQ(fault(text.substr(0, 100)),
            "it is not valid JSON from byte 100 on");
  std::string broken = text;
  broken[20] = '\x01';
  EXPECT_EQ(fault(broken), "it is not valid JSON from byte 20 on");
  broken = text;
  broken.replace(text.find("\"ranks\""), 7, "\"ranky\"");
  EXPECT_EQ(fault(broken), "its checksum is wrong");
}

// Every bit of the text counts, also in escapes and numbers that could be
// written in another way.
TEST(CheckpointManifest, AFlippedBitIsFound) {
  CheckpointManifest stored = small();
  stored.state = {7, 70, {1e30f, 3, 2}};
  stored.layouts[0].members[0].name = "a\x1f\"b\u00e9";
  stored.layouts[0].members[0].aliases = {"c"};
  std::string text = toJson(stored);
  ASSERT_TRUE(parseCheckpoint(text));
  EXPECT_THAT(parseCheckpoint(text)->layouts[0].members[0].aliases,
              ElementsAre("c"));
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string flipped = text;
    flipped[bit / 8] = char(flipped[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(parseCheckpoint(flipped)) << flipped;
  }
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

// With groups of two of four ranks, ranks 0 and 2 have shards 0 and 1.
TEST(CheckpointManifest, GroupsReadBackInAnotherFormat) {
  CheckpointManifest stored;
  stored.ranks = 4;
  stored.layouts.push_back({"l", 8, 0, {}, 2});
  stored.files.resize(4);
  std::string text = toJson(stored);
  EXPECT_THAT(text, HasSubstr("\"format\":2"));
  auto read = parseCheckpoint(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->layouts[0].group, 2);
  std::vector<int64_t> places;
  for (int64_t shard = 0; shard < 4; ++shard)
    places.push_back(rankOfShard(*read, read->layouts[0], shard));
  EXPECT_THAT(places, ElementsAre(0, 2, 1, 3));
  for (int64_t group : {3, 5, -2}) {
    stored.layouts[0].group = group;
    EXPECT_FALSE(parseCheckpoint(toJson(stored))) << group;
  }
  stored.layouts[0].group = 0;
  EXPECT_THAT(toJson(stored), HasSubstr("\"format\":1"));
  EXPECT_EQ(rankOfShard(stored, stored.layouts[0], 3), 3);
}

// The message names what differs, so that a user sees which of the two is
// wrong.
TEST(CheckpointManifest, AnotherModelIsNamed) {
  Manifest program;
  Layout layout;
  layout.states = 2;
  layout.optimizer = "adam";
  Member member;
  member.name = "w";
  member.shape = {3};
  layout.members = {member};
  program.layouts = {layout};
  auto message = [&] {
    return checkSameModel(small(), program).error().message;
  };
  EXPECT_THAT(message(), HasSubstr("'w' [3] has 1 optimizer states, but adam "
                                   "has 2"));
  program.layouts[0].states = 1;
  EXPECT_TRUE(checkSameModel(small(), program));
  // An average may be new.
  program.layouts[0].states = 2;
  program.layouts[0].average = true;
  EXPECT_TRUE(checkSameModel(small(), program));
  // Any name of a tied parameter will do.
  program.layouts[0].members[0].name = "tied";
  program.layouts[0].members[0].aliases = {"w"};
  EXPECT_TRUE(checkSameModel(small(), program));
  program.layouts[0].members[0] = member;
  program.layouts[0].members[0].shape = {4};
  EXPECT_THAT(message(), HasSubstr("its 'w' [3] is [4] here"));
  program.layouts[0].members[0].name = "v";
  EXPECT_THAT(message(), HasSubstr("it has no 'v' [4]; the program has no 'w' "
                                   "[3]"));
}

} // namespace
