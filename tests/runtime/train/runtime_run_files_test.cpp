// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The files of a run: what it refuses to write or read, how two runs and one
// run's files keep apart, and what is saved when a signal ends it.
#include "runtime/cli/output_paths.h"
#include "runtime/support/new_file.h"
#include "runtime/support/output_file.h"
#include "tests/runtime/train/runtime_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <tuple>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace {

// ---- files that appear whole ----

TEST(NewFile, ReplacesOnlyWhenItIsComplete) {
  TemporaryFolder folder;
  std::string path = folder.write("a", "old");
  chmod(path.c_str(), 0600);
  {
    NewFile dropped;
    ASSERT_TRUE(dropped.open(path));
    ASSERT_TRUE(dropped.write(0, "new", 3));
    EXPECT_EQ(folder.read("a"), "old");
  }
  EXPECT_EQ(folder.read("a"), "old");
  NewFile file;
  ASSERT_TRUE(file.open(path));
  ASSERT_TRUE(file.write(0, "new", 3));
  ASSERT_TRUE(file.commit());
  EXPECT_EQ(folder.read("a"), "new");
  struct stat status;
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u); // a private file stays private
  auto files = std::filesystem::directory_iterator(folder / "");
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

// Two files for one path have temporary names of their own, and a link is
// replaced instead of followed.
TEST(NewFile, TouchesNoOtherFile) {
  TemporaryFolder folder;
  std::string mine = folder.write("a.tmp", "mine");
  std::filesystem::create_symlink("a.tmp", folder / "a");
  NewFile first, second;
  ASSERT_TRUE(first.open(folder / "a"));
  ASSERT_TRUE(second.open(folder / "a"));
  ASSERT_TRUE(first.write(0, "1", 1));
  ASSERT_TRUE(second.write(0, "2", 1));
  ASSERT_TRUE(second.commit());
  ASSERT_TRUE(first.commit());
  EXPECT_EQ(folder.read("a"), "1");
  EXPECT_EQ(folder.read("a.tmp"), "mine");
}

// The temporary name of a long name is not too long.
TEST(NewFile, TakesTheLongestName) {
  TemporaryFolder folder;
  NewFile file;
  ASSERT_TRUE(file.open(folder / std::string(255, 'n')));
  EXPECT_TRUE(file.commit());
}

// Only names that are made by this program are known for temporary ones.
TEST(NewFile, KnowsItsTemporaryNames) {
  TemporaryFolder folder;
  NewFile file;
  ASSERT_TRUE(file.open(folder / "a.tmp-b"));
  std::string name = file.temporaryPath().substr((folder / "").size());
  EXPECT_EQ(temporaryTarget(name), "a.tmp-b");
  for (const char *other :
       {"", ".", "a", ".a", ".a.tmp-", ".a.tmp-012345678", "0123456789abcdef",
        "a.tmp-0123456789abcdef", ".a.tmp-0123456789abcdeg",
        ".a.tmp-0123456789abcdef0", ".a.tmp-0123456789abcde",
        ".a.tmp-0123456789ABCDEF"})
    EXPECT_EQ(temporaryTarget(other), "") << other;
}

// ---- one path for two uses ----

// Two spellings or links of one file are one file.
TEST(OutputPaths, AreComparedAsFiles) {
  TemporaryFolder folder;
  std::string file = folder.write("file", "");
  std::filesystem::create_directory(folder / "d");
  std::filesystem::create_symlink("new", folder / "link");
  std::filesystem::create_hard_link(file, folder / "hard");
  auto distinct = [&](const std::string &a, const std::string &b) {
    return bool(checkDistinct({{"--save", folder / a}, {"--log", folder / b}},
                              {})) &&
           bool(checkDistinct({{"--save", folder / a}},
                              {{"--init", folder / b}}));
  };
  EXPECT_TRUE(distinct("file", "new"));
  EXPECT_TRUE(distinct("new", "d/new"));
  EXPECT_TRUE(distinct("absent/new", "absent/other"));
  EXPECT_FALSE(distinct("new", "new"));
  EXPECT_FALSE(distinct("new", "d/../new"));
  EXPECT_FALSE(distinct("new", "link"));
  EXPECT_FALSE(distinct("file", "hard"));
}

// Neither an input nor another output, under any name.
TEST_F(Program, NoFileOfARunIsOverwritten) {
  ASSERT_EQ(run("--steps 1 --save init.safetensors").code, 0);
  struct {
    const char *flags, *message;
  } cases[] = {
      {"--save x --log x", "--save and --log are both 'x'"},
      {"--save x --log ./x", "--save 'x' and --log './x' are the same file"},
      {"--save x --save-gradients x", "--save and --save-gradients are"},
      {"--log x --trace x", "--log and --trace are both 'x'"},
      {"--ranks 2 --log x.1.json --trace x.json", "--log and --trace"},
      {"--save ids.npy", "--save and the data of input 'ids' are both"},
      {"--log target.npy", "--log and the data of input 'target' are both"},
      {"--trace weights.bin",
       "--trace 'weights.bin' and the model's weights '"},
      {"--init init.safetensors --log init.safetensors", "--log and --init"},
      {"--log " TOY_PROGRAM, "and the program"},
  };
  std::string ids = folder.read("ids.npy");
  for (auto &[flags, message] : cases) {
    Outcome outcome = run(std::string("--steps 1 ") + flags);
    EXPECT_EQ(outcome.code, 2) << flags;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
  EXPECT_EQ(folder.read("ids.npy"), ids);
  EXPECT_FALSE(std::filesystem::exists(folder / "x"));
  // Training may continue in place.
  EXPECT_EQ(
      run("--steps 1 --init init.safetensors --save init.safetensors").code, 0);
}

// ---- what is not a file ----

// FIFOs would be waited for, and a device or folder has no samples.
TEST_F(Program, OnlyRegularFilesAreRead) {
  shell("mkfifo fifo && mkdir moved && mkfifo moved/weights.bin");
  struct {
    const char *flags, *message;
  } cases[] = {
      {"--data ids=fifo --data target=target.npy", "it is a FIFO or pipe"},
      {"--data ids=/dev/zero --data target=target.npy", "it is a device"},
      {"--data ids=moved --data target=target.npy", "it is a folder"},
      {"--tokens ids=fifo:u8 --data target=target.npy", "it is a FIFO"},
      {"--data ids=ids.npy --data target=target.npy --init fifo",
       "it is a FIFO"},
      {"--data ids=ids.npy --data target=target.npy --weights moved",
       "it is a FIFO"},
      {"--data ids=ids.npy --data target=target.npy --log fifo",
       "'fifo': it is a FIFO without a reader"},
      {"--data ids=ids.npy --data target=target.npy --save fifo",
       "'fifo': it is a FIFO"},
      {"--data ids=ids.npy --data target=target.npy --trace moved",
       "'moved': it is a folder"},
  };
  for (auto &[flags, message] : cases) {
    bool moves = std::strstr(flags, "--weights");
    Outcome outcome = shell(std::string(moves ? "TOY_FOLDER=else " : "") +
                            "timeout 20 " TOY_PROGRAM " --steps 1 " + flags);
    EXPECT_EQ(outcome.code, 1) << flags;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << flags;
  }
}

// ---- data that cannot be meant ----

TEST_F(Program, InputsHaveEquallyManySamples) {
  folder.write("target.npy", npy<float>("<f4", "(39,)", 39));
  Outcome outcome = run("--steps 1");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("inputs 'ids' and 'target' have different "
                                     "numbers of samples: 'ids.npy' has 40, "
                                     "'target.npy' has 39"));
}

// A rank whose --init holds other values, or none, would train on a mixture.
// Other names, an order or tensors that the program does not take do not count.
TEST_F(Program, RanksLoadTheSameValues) {
  for (auto &[name, value, stranger] :
       {std::tuple("a", 1.f, 1), std::tuple("b", 2.f, 1),
        std::tuple("same", 1.f, 2)}) {
    SafeTensorsHeader header;
    for (auto &[tensor, size] :
         {std::pair("bias", 1), std::pair("scale", 1), std::pair("table", 10),
          std::pair("weight", 3)})
      header.add(tensor, "f32", {size}, {});
    header.add("stranger", "u8", {4 * stranger}, {});
    std::vector<float> values(15 + size_t(stranger), 1.f);
    values[14] = value; // the last of the weight
    folder.write(std::string(name) + ".safetensors",
                 header.text() +
                     std::string(reinterpret_cast<const char *>(values.data()),
                                 values.size() * sizeof(float)));
  }
  auto with = [&](const std::string &other) {
    return mpi(1, "--steps 1 --init a.safetensors : -np 1 " TOY_PROGRAM
                  " --data ids=ids.npy --data target=target.npy --steps 1" +
                      other);
  };
  EXPECT_EQ(with(" --init same.safetensors").code, 0);
  for (auto &[flags, message] :
       {std::pair(" --init b.safetensors",
                  "error: the hash of the values of --init is "),
        std::pair("", "is 'none' on rank 1 and ")}) {
    Outcome outcome = with(flags);
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

// Ranks that read other copies of the model's files would train other models.
// Each rank checks only its part of them against the compiler's hashes.
TEST_F(Program, RanksMustReadTheSameWeights) {
  std::string values = folder.read("weights.bin");
  shell("mkdir copy other");
  folder.write("copy/weights.bin", values);
  values[values.size() / 2 + 3] ^= 1;
  folder.write("other/weights.bin", values);
  std::string far = "TOY_FOLDER=elsewhere/models";
  for (auto &[first, second, code] :
       {std::tuple("copy", "copy", 0), std::tuple("copy", "other", 1),
        std::tuple("other", "copy", 1)}) {
    Outcome outcome =
        mpi(1,
            "--steps 1 --weights " + std::string(first) +
                " : -x TOY_FOLDER -np 1 " TOY_PROGRAM
                " --data ids=ids.npy --data target=target.npy --steps 1 "
                "--weights " +
                second,
            far);
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_EQ(outcome.errors(), code != 0) << outcome.err;
  }
}

// A NaN in the data is not the learning rate's fault, whether it shows in the
// loss or only in the gradient.
TEST_F(Program, NanInTheDataIsNamed) {
  setTarget(13, NAN); // in step 2 if V = 3
  for (auto &outcome : {run("--steps 9 --ranks 3"), mpi(3, "--steps 9")}) {
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err,
                HasSubstr("nan; input 'target' has nan in its data: "
                          "'target.npy' sample 13 element 0; correct it"));
    EXPECT_THAT(outcome.err, HasSubstr("error: step 2: the loss is "));
    EXPECT_THAT(outcome.err, Not(HasSubstr("--lr")));
  }
}

// ---- two runs, and the end of one ----

// Starts a run that would take hours, waits for `condition` of the shell, and
// ends with `rest`, where $pid is the run.
std::string background(const std::string &flags, const std::string &condition,
                       const std::string &rest) {
  return "( env --default-signal=INT " TOY_PROGRAM
         " --data ids=ids.npy --data target=target.npy --steps 100000000 " +
         flags + " & pid=$!; for i in $(seq 200); do " + condition +
         " && break; sleep 0.05; done; " + rest + " )";
}

const std::string logged = "[ $(wc -l <log) -gt 2 ] 2>/dev/null";

// The second run is refused while the first one lives.
TEST_F(Program, TwoRunsDoNotShareALog) {
  folder.write("old", "{}\n");
  Outcome outcome = shell(background(
      "--log log", logged,
      TOY_PROGRAM " --data ids=ids.npy --data target=target.npy --steps 1 "
                  "--log log; code=$?; kill $pid; wait $pid; exit $code"));
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.errors(), 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("'log' is the log of another run"));
  std::vector<nlohmann::json> lines = log();
  for (size_t i = 1; i < lines.size(); ++i)
    EXPECT_EQ(lines[i]["step"], i - 1);
}

// Whoever watches a run may leave: it goes on.
TEST_F(Program, AReaderThatLeavesDoesNotEndTheRun) {
  Outcome outcome =
      shell("bash -c 'set -o pipefail; timeout 60 " TOY_PROGRAM
            " --data ids=ids.npy --data target=target.npy --steps 2000 --log "
            "/dev/stdout --save out.safetensors | head -n 2'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err,
              HasSubstr("warning: cannot write '/dev/stdout': Broken "
                        "pipe; the run goes on"));
  EXPECT_TRUE(SafeTensors::open(folder / "out.safetensors"));
}

// A run is worth more than its messages: it goes on from its first line if
// nobody reads them.
TEST_F(Program, ARunThatNobodyReadsGoesOn) {
  for (const char *flags :
       {"--steps 2", "--steps 2 --ranks 2", "--steps 2 --threads 64"}) {
    shell("rm -f out.safetensors code");
    shell("{ " TOY_PROGRAM " --data ids=ids.npy --data target=target.npy "
          "--save out.safetensors " +
          std::string(flags) + " 2>&1; echo $? >code; } | true");
    EXPECT_EQ(folder.read("code"), "0\n") << flags;
    EXPECT_TRUE(SafeTensors::open(folder / "out.safetensors")) << flags;
  }
}

// A command that the run starts ends by SIGPIPE, as commands do.
TEST_F(Program, ACommandAfterACheckpointEndsBySigpipe) {
  Outcome outcome = run("--steps 1 --checkpoint c "
                        "--after-checkpoint 'kill -PIPE $$; touch survived'");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("ended with signal 13"));
  EXPECT_NE(shell("ls survived").code, 0);
}

// A run that is refused leaves the log of the one before.
TEST_F(Program, ARefusedRunKeepsTheLog) {
  folder.write("log", "{}\n");
  EXPECT_EQ(run("--steps 1 --log log --ranks 9").code, 2);
  EXPECT_EQ(run("--steps 1 --log log --init none").code, 1);
  EXPECT_EQ(folder.read("log"), "{}\n");
}

// The first signal ends the run after its step: what is saved is what a run of
// so many steps saves.
TEST_F(Program, SignalsSaveTheStepsThatWereDone) {
  for (const char *signal : {"TERM", "INT", "USR1"})
    for (const char *flags : {"", " --ranks 2 --accumulate 2"}) {
      std::filesystem::remove(folder / "log");
      Outcome outcome = shell(background(outputs + flags, logged,
                                         std::string("kill -") + signal +
                                             " $pid; wait $pid; exit $?"));
      EXPECT_EQ(outcome.code, 4) << outcome.err;
      EXPECT_EQ(outcome.errors(), 0) << outcome.err;
      std::string steps = std::to_string(log().size() - 1);
      EXPECT_THAT(outcome.err, HasSubstr(std::string("stopped by SIG") +
                                         signal + " after step " + steps +
                                         "/100000000; the parameters are in "
                                         "'out.safetensors'"));
      std::string bytes = folder.read("out.safetensors");
      ASSERT_EQ(run("--steps " + steps + outputs + flags).code, 0);
      EXPECT_EQ(bytes, folder.read("out.safetensors"));
    }
}

// A signal that reaches one rank ends all.
TEST_F(Program, ASignalToOneRankEndsAll) {
  std::string common = "WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=" +
                       std::to_string(29000 + getpid() % 1000) +
                       " env --default-signal=INT " TOY_PROGRAM
                       " --data ids=ids.npy --data target=target.npy "
                       "--steps 100000000 --save out.safetensors --log log & ";
  std::string start = "( RANK=0 " + common + "first=$!; RANK=1 " + common +
                      "second=$!; for i in $(seq 200); do " + logged +
                      " && break; sleep 0.05; done; ";
  Outcome outcome =
      shell(start + "kill -TERM $second; wait $first; code=$?; wait $second; "
                    "[ $? = $code ] || code=1; exit $code )");
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("stopped by SIGTERM after step "));
  EXPECT_TRUE(SafeTensors::open(folder / "out.safetensors"));
  // A second Ctrl-C does not wait for a rank that hangs.
  std::filesystem::remove(folder / "out.safetensors");
  std::filesystem::remove(folder / "log");
  outcome = shell(start + "kill -STOP $second; kill -TERM $first; sleep 0.3; "
                          "kill -INT $first; wait $first; code=$?; kill -KILL "
                          "$second; wait $second; exit $code )");
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("stopped by")));
  EXPECT_FALSE(std::filesystem::exists(folder / "out.safetensors"));
}

// The run ends by itself before the limit, as at a signal.
TEST_F(Program, ATimeLimitEndsTheRun) {
  auto began = std::chrono::steady_clock::now();
  Outcome outcome =
      run("--steps 100000000 --time-limit 1s --ranks 2" + outputs);
  std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("stopped by --time-limit after step "));
  EXPECT_GT(took.count(), 0.9);
  EXPECT_TRUE(SafeTensors::open(folder / "out.safetensors"));
  for (const char *wrong : {"10", "0s", "-1s", "1d", "10:70:00", "1:2", "x"}) {
    outcome = run(std::string("--steps 1 --time-limit ") + wrong);
    EXPECT_EQ(outcome.code, 2) << wrong;
    EXPECT_THAT(outcome.err, HasSubstr("is not a time such as 90s"));
  }
  for (const char *right : {"5m", "0.5h", "01:00:00", "1-00:00:00"})
    EXPECT_EQ(run(std::string("--steps 1 --time-limit ") + right).code, 0);
}

// A run that resumes continues the log: the steps that it runs again are there
// once, and a line that was cut off by a crash is gone.
TEST_F(Program, AResumedRunContinuesItsLog) {
  std::string flags = " --log log --checkpoint ckpt --checkpoint-every 2";
  ASSERT_EQ(run("--steps 5" + flags).code, 0);
  std::ofstream(folder / "log", std::ios::app) << "{\"step\":5,\"lo";
  ASSERT_EQ(run("--steps 8 --resume=4" + flags).code, 0);
  std::vector<int> steps;
  for (const auto &line : log())
    steps.push_back(line.contains("step") ? line["step"].get<int>() : -1);
  EXPECT_THAT(steps, ElementsAre(-1, 0, 1, 2, 3, -1, 4, 5, 6, 7));
  // A file that is not a log is replaced.
  folder.write("log", "{\"step\":0}\n");
  ASSERT_EQ(run("--steps 9 --resume" + flags).code, 0);
  EXPECT_EQ(log().size(), 2u);
}

} // namespace
