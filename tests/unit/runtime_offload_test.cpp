// Optimizer states on disk: the file (runtime/core/state_file.h) against plain
// memory, and whole runs against those that keep their states in memory, with
// reads and writes of the file that fail.
#include "runtime/core/state_file.h"
#include "tests/unit/runtime_faults.h"

#include <filesystem>
#include <numeric>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::HasSubstr;

namespace {

// Layouts of 10 elements with 2 states, of none, and of 7 elements with 1
// state, in pieces of up to 4 elements.
class States : public testing::Test {
protected:
  States() {
    auto made = StateFile::make(folder / "", layouts, pieceElements, memory);
    EXPECT_TRUE(made);
    states = std::move(*made);
    for (const StateFile::Extent &extent : layouts)
      expected.emplace_back(size_t(extent.states * extent.elements));
  }

  // Adds a number of its own to each state, as an update of all layouts does.
  void update() {
    for (size_t layout = 0; layout < layouts.size(); ++layout)
      for (int64_t i = 0; i < states->pieces(layout); ++i)
        updatePiece(layout, i);
  }
  void updatePiece(size_t layout, int64_t number) {
    auto piece = states->acquire(layout, number);
    ASSERT_TRUE(piece) << piece.error().message;
    ASSERT_EQ(piece->begin, number * pieceElements);
    for (int32_t state = 0; state < layouts[layout].states; ++state)
      for (int64_t i = piece->begin; i < piece->end; ++i) {
        ++added;
        at(layout, state, i) += added;
        piece->values[state * piece->stride + i - piece->begin] += added;
      }
    states->release();
  }
  float &at(size_t layout, int32_t state, int64_t element) {
    return expected[layout][size_t(state * layouts[layout].elements + element)];
  }
  void check() {
    for (size_t layout = 0; layout < layouts.size(); ++layout) {
      const StateFile::Extent &extent = layouts[layout];
      std::vector<float> found(expected[layout].size());
      for (int32_t state = 0; state < extent.states; ++state)
        ASSERT_TRUE(states->read(layout, state, 0, extent.elements,
                                 &found[size_t(state * extent.elements)]));
      EXPECT_EQ(found, expected[layout]);
    }
  }

  static constexpr int64_t pieceElements = 4;
  const std::vector<StateFile::Extent> layouts = {{10, 2}, {}, {7, 1}};
  TemporaryFolder folder;
  float memory[16];
  float added = 0;
  std::unique_ptr<StateFile> states;
  std::vector<std::vector<float>> expected;
};

TEST_F(States, BeginAsZeroesAndHoldWhatUpdatesWrite) {
  EXPECT_EQ(states->pieces(0), 3);
  EXPECT_EQ(states->pieces(1), 0);
  EXPECT_EQ(states->pieces(2), 2);
  check();
  for (int step = 0; step < 5; ++step) {
    update();
    if (step != 2)
      check();
  }
}

// What is set between two updates replaces pieces that are in memory already.
TEST_F(States, MayBeSetBetweenUpdates) {
  update();
  const float values[] = {-1, -2, -3, -4, -5};
  ASSERT_TRUE(states->write(0, 1, 3, 5, values));
  for (int64_t i = 0; i < 5; ++i)
    at(0, 1, 3 + i) = values[i];
  check();
  update();
  check();
}

// An edited dump may have its optimizers in another order than its layouts.
TEST_F(States, PiecesMayBeTakenInAnyOrder) {
  for (auto [layout, piece] : {std::pair(2, 1), {0, 2}, {0, 0}, {0, 0}, {2, 0}})
    updatePiece(size_t(layout), piece);
  check();
}

TEST(StateFileTest, OnePieceAloneStaysInMemory) {
  TemporaryFolder folder;
  float memory[16];
  auto states = StateFile::make(folder / "", {{3, 1}}, 4, memory);
  ASSERT_TRUE(states);
  for (float step = 1; step < 4; ++step) {
    auto piece = (*states)->acquire(0, 0);
    ASSERT_TRUE(piece);
    EXPECT_EQ(piece->values[2], step - 1);
    piece->values[2] = step;
    (*states)->release();
  }
  float found;
  ASSERT_TRUE((*states)->read(0, 0, 2, 1, &found));
  EXPECT_EQ(found, 3);
}

TEST(StateFileTest, HasNoName) {
  TemporaryFolder folder;
  float memory[16];
  auto states = StateFile::make(folder / "", {{8, 1}}, 4, memory);
  ASSERT_TRUE(states);
  EXPECT_TRUE(std::filesystem::is_empty(folder / ""));
}

TEST(StateFileTest, RefusesADiskThatIsTooSmallAndAFolderThatIsNotThere) {
  TemporaryFolder folder;
  auto large =
      StateFile::make(folder / "", {{int64_t(1) << 48, 2}}, 1 << 30, nullptr);
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().message, HasSubstr("take 2048.0 TiB, but '"));
  EXPECT_THAT(large.error().message, HasSubstr("has room for "));
  EXPECT_THAT(large.error().message, HasSubstr("by --offload-dir"));
  auto absent = StateFile::make(folder / "none", {{8, 1}}, 4, nullptr);
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, HasSubstr("No such file or directory"));
}

class Offload : public Faults {
protected:
  // Returns losses, norms and saved bytes.
  std::string bits(const std::string &flags, const std::string &environment) {
    return trace(run(flags + outputs, environment));
  }
};

// On any number of ranks, and with a resume of one by the other in between.
TEST_F(Offload, HasTheBitsOfStatesInMemory) {
  const std::string offload = "TOY_OFFLOAD=1 TMPDIR=.";
  for (const char *strategy : {"zero3", "zero1", "ddp", "step"}) {
    std::string environment = std::string("TOY_STRATEGY=") + strategy + " ";
    std::string inMemory = bits("--steps 6 --ranks 2", environment);
    EXPECT_EQ(bits("--steps 6 --ranks 2", environment + offload), inMemory)
        << strategy;
  }
  std::string expected = folder.read("out.safetensors");
  for (const std::string &first : {offload, std::string()}) {
    const std::string &second = first.empty() ? offload : std::string();
    shell("rm -rf c");
    Outcome begun = run("--steps 3 --ranks 2 --checkpoint c "
                        "--checkpoint-every 1",
                        "TOY_STRATEGY=step " + first);
    ASSERT_EQ(begun.code, 0) << begun.err;
    Outcome ended = run("--steps 6 --ranks 2 --checkpoint c --resume "
                        "--save out.safetensors",
                        "TOY_STRATEGY=step " + second);
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(folder.read("out.safetensors"), expected) << first;
  }
}

// The plan has the memory of two pieces, and apart from it what is on disk.
TEST_F(Offload, IsInThePlan) {
  ASSERT_EQ(run("--steps 1" + outputs, "TOY_OFFLOAD=1").code, 0);
  nlohmann::json plan = log()[0]["plan"];
  // Shards of 32 and 64 elements, one state each.
  EXPECT_EQ(plan["on disk"], (32 + 64) * 4);
  EXPECT_EQ(plan["state pieces"], 2 * 64 * 4);
  EXPECT_EQ(plan["optimizer"], 0);
  Outcome info = run("--info", "TOY_OFFLOAD=1");
  EXPECT_THAT(info.out, HasSubstr("  on disk "));
  EXPECT_THAT(info.out, HasSubstr("  state pieces "));
  Outcome refused = run("--steps 1 --offload-dir .");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("compile it with --offload=optimizer"));
}

// A disk that is full or bad ends the run with one line. The file of --save
// stays as it was.
TEST_F(Offload, ADiskThatFailsEndsTheRun) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  folder.write("out.safetensors", "old");
  const std::string onStates = "TOY_OFFLOAD=1 FAULT_PATH=fsdpc-states ";
  auto fails = [&](const std::string &variables, const std::string &message) {
    Outcome outcome = runWith(onStates + variables, "--steps 5 --offload-dir . "
                                                    "--save out.safetensors");
    EXPECT_EQ(outcome.code, 3) << variables;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_EQ(folder.read("out.safetensors"), "old");
    EXPECT_EQ(shell("ls -A | grep fsdpc-states").out, "") << variables;
  };
  fails("FAULT_CALL=write FAULT_FROM=3 FAULT_ERRNO=28",
        "No space left on device");
  fails("FAULT_CALL=write FAULT_AT=1 FAULT_ERRNO=5", "error: cannot write '");
  fails("FAULT_CALL=read FAULT_FROM=1 FAULT_ERRNO=5", "(tried 4 times)");
  fails("FAULT_ROOM=100",
        "take 384 B, but '.' has room for 100 B, also for other ranks");
  // A read that fails once is tried again.
  Outcome passed = runWith(onStates + "FAULT_CALL=read FAULT_AT=1 "
                                      "FAULT_ERRNO=5",
                           "--steps 5 --offload-dir . --save out.safetensors");
  EXPECT_EQ(passed.code, 0) << passed.err;
  EXPECT_THAT(passed.err, HasSubstr("trying again"));
}

} // namespace
