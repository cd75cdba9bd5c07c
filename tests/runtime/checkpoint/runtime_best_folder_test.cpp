// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The folder of --best: which file it removes, and what two runs that share it
// leave there.
#include "runtime/checkpoint/best_folder.h"
#include "tests/runtime/data/runtime_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fcntl.h>
#include <random>
#include <sys/file.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::ElementsAre;
using testing::HasSubstr;

namespace {

class Best : public testing::Test {
protected:
  // Keeps a step as a run does; the parameters are the text of the loss.
  static Status keep(BestFolder &best, int64_t step, double loss) {
    NewFile file;
    FSDPC_TRY(file.openUnnamed(best.pathOf(step)));
    std::string text = std::to_string(loss);
    FSDPC_TRY(file.write(0, text.data(), text.size()));
    return best.publish(step, loss, file);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (auto &entry : std::filesystem::directory_iterator(folder / "best"))
      found.push_back(entry.path().filename().string());
    std::sort(found.begin(), found.end());
    return found;
  }
  std::string path() const { return folder / "best"; }
  TemporaryFolder folder;
};

TEST_F(Best, HoldsTheLowestAlone) {
  BestFolder best;
  ASSERT_TRUE(best.open(path(), false));
  ASSERT_TRUE(keep(best, 1, 3));
  ASSERT_TRUE(keep(best, 2, 2));
  EXPECT_EQ(best.loss(), 2);
  EXPECT_EQ(folder.read("best/best.json"),
            "{\"file\":\"step-0000002.safetensors\",\"step\":2,"
            "\"eval_loss\":2.0}\n");
  EXPECT_THAT(names(), ElementsAre(".best.lock", "best.json",
                                   "step-0000002.safetensors"));
  EXPECT_FALSE(BestFolder().open(path(), false));
  BestFolder resumed;
  ASSERT_TRUE(resumed.open(path(), true));
  EXPECT_EQ(resumed.loss(), 2);
}

// A run that is refused, or finds no best, leaves nothing.
TEST_F(Best, LeavesNoEmptyFolder) {
  {
    BestFolder best;
    ASSERT_TRUE(best.open(path(), false));
  }
  EXPECT_FALSE(std::filesystem::exists(path()));
}

// ---- what best.json may name ----

// An index that --best would not have written decides nothing, whether it is
// there at the start or comes while the run trains.
TEST_F(Best, RemovesOnlyFilesOfItsOwn) {
  const std::string own = "step-0000001.safetensors";
  folder.write("thesis", "mine");
  const char *files[] = {"best.json",
                         "../thesis",
                         "thesis",
                         "..",
                         ".",
                         "",
                         ".best.lock",
                         "model.safetensors",
                         "step-0000002.safetensors",
                         "step-1.safetensors",
                         "./step-0000001.safetensors",
                         "sub/step-0000001"};
  std::vector<std::string> texts = {
      "",
      "{",
      "[]",
      "{\"file\":\"" + own + "\",\"eval_loss\":9}",
      "{\"file\":\"" + own + "\",\"step\":1}",
      "{\"file\":\"" + own + "\",\"step\":-1,\"eval_loss\":9}",
      "{\"file\":1,\"step\":1,\"eval_loss\":9}"};
  for (std::string file : files)
    texts.push_back(
        nlohmann::json{{"file", file}, {"step", 1}, {"eval_loss", 9}}.dump());
  texts.push_back(
      nlohmann::json{{"file", folder / "thesis"}, {"step", 1}, {"eval_loss", 9}}
          .dump());
  for (const std::string &text : texts) {
    std::filesystem::remove_all(path());
    BestFolder early;
    ASSERT_TRUE(early.open(path(), false));
    ASSERT_TRUE(keep(early, 1, 5));
    for (const char *name :
         {"thesis", "model.safetensors", "step-0000002.safetensors"})
      folder.write(std::string("best/") + name, "mine");
    folder.write("best/best.json", text);
    std::vector<std::string> before = names();
    BestFolder late;
    Status opened = late.open(path(), true), kept = keep(early, 3, 1);
    for (const Status &refused : {opened, kept}) {
      EXPECT_FALSE(refused) << text;
      EXPECT_THAT(refused.error().message,
                  HasSubstr("best.json' is not a file that --best wrote"));
    }
    EXPECT_EQ(names(), before) << text;
    EXPECT_EQ(folder.read("best/best.json"), text);
  }
  EXPECT_EQ(folder.read("thesis"), "mine");
}

// The best one before may have become a link; what it leads to stays.
TEST_F(Best, FollowsNoLink) {
  folder.write("thesis", "mine");
  BestFolder best;
  ASSERT_TRUE(best.open(path(), false));
  ASSERT_TRUE(keep(best, 1, 5));
  std::filesystem::remove(folder / "best/step-0000001.safetensors");
  std::filesystem::create_symlink("../thesis",
                                  folder / "best/step-0000001.safetensors");
  std::filesystem::create_symlink("../thesis",
                                  folder / "best/step-0000002.safetensors");
  ASSERT_TRUE(keep(best, 2, 4));
  EXPECT_EQ(folder.read("thesis"), "mine");
  EXPECT_THAT(names(), ElementsAre(".best.lock", "best.json",
                                   "step-0000002.safetensors"));
  EXPECT_FALSE(
      std::filesystem::is_symlink(folder / "best/step-0000002.safetensors"));
  // Neither the index nor the lock may be one.
  for (const char *name : {"best.json", ".best.lock"}) {
    std::string at = std::string("best/") + name;
    std::filesystem::rename(folder / at, folder / "moved");
    std::filesystem::create_symlink("../moved", folder / at);
    std::string bytes = folder.read("moved");
    Status kept = keep(best, 3, 1);
    ASSERT_FALSE(kept) << name;
    EXPECT_THAT(kept.error().message,
                HasSubstr(std::string(name) + "' is a link"));
    EXPECT_EQ(folder.read("moved"), bytes);
    std::filesystem::rename(folder / "moved", folder / at);
  }
}

// ---- two runs ----

// Two runs publish falling losses at the same steps. Whoever is last, the
// lowest loss of both wins, beside its own parameters.
TEST_F(Best, TheLowestOfTwoRunsWins) {
  constexpr int rounds = 20, steps = 12;
  std::mt19937 random(1);
  for (int round = 0; round < rounds; ++round) {
    std::filesystem::remove_all(path());
    std::vector<double> losses[2];
    for (auto &own : losses) {
      for (int step = 0; step < steps; ++step)
        own.push_back(double(random() % 100000));
      std::sort(own.rbegin(), own.rend());
    }
    auto train = [&](const std::vector<double> &own) {
      BestFolder best;
      EXPECT_TRUE(best.open(path(), true));
      for (int step = 0; step < steps; ++step)
        if (own[size_t(step)] < best.loss()) {
          Status kept = keep(best, step, own[size_t(step)]);
          EXPECT_TRUE(kept) << kept.error().message;
        }
    };
    std::thread first(train, losses[0]), second(train, losses[1]);
    first.join();
    second.join();
    auto index = nlohmann::json::parse(folder.read("best/best.json"));
    double lowest = std::min(losses[0].back(), losses[1].back());
    std::string file = index["file"];
    EXPECT_EQ(index["eval_loss"], lowest) << round;
    EXPECT_EQ(folder.read("best/" + file), std::to_string(lowest)) << round;
    EXPECT_THAT(names(), ElementsAre(".best.lock", "best.json", file)) << round;
  }
}

// A run that was stopped under the lock keeps no other from going on: its
// publication fails in time, and nothing has changed.
TEST_F(Best, ALockThatIsHeldIsAnError) {
  BestFolder best(std::chrono::milliseconds(50));
  ASSERT_TRUE(best.open(path(), false));
  ASSERT_TRUE(keep(best, 1, 5));
  int held = open((folder / "best/.best.lock").c_str(), O_RDWR);
  ASSERT_EQ(flock(held, LOCK_EX), 0);
  std::vector<std::string> before = names();
  std::string index = folder.read("best/best.json");
  Status kept = keep(best, 2, 4);
  EXPECT_FALSE(kept);
  EXPECT_THAT(kept.error().message,
              HasSubstr(".best.lock': another run has held it for 50 ms; "));
  EXPECT_EQ(names(), before);
  EXPECT_EQ(folder.read("best/best.json"), index);
  close(held);
  EXPECT_TRUE(keep(best, 2, 4));
}

} // namespace
