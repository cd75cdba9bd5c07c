// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Offloading: the files (runtime/core/shard_file.h, activation_file.h) against
// plain memory, and whole runs against those that keep all in memory, with
// reads and writes of the file that fail.
#include "runtime/core/activation_file.h"
#include "runtime/core/shard_file.h"
#include "tests/runtime/train/runtime_faults.h"

#include <filesystem>
#include <numeric>

using namespace fsdpc;
using namespace fsdpc::runtime;
using testing::HasSubstr;

namespace {

// The contents of a file of layouts, in memory.
struct Kept {
  std::vector<float> states, gradient, parameters;
  bool operator==(const Kept &) const = default;
};

// Layouts of 10 elements with 2 states, of none, of 7 elements with 1 state,
// parameters and a gradient, and of 5 frozen parameters, in pieces of up to 4
// elements.
class Shards : public testing::Test {
protected:
  Shards() {
    auto made = ShardFile::make(folder / "", layouts, pieceElements, memory);
    EXPECT_TRUE(made);
    shards = std::move(*made);
    for (const ShardFile::Extent &extent : layouts) {
      auto count = size_t(extent.elements);
      expected.push_back(
          {std::vector<float>(size_t(extent.states) * count),
           std::vector<float>(extent.gradient ? count : 0),
           std::vector<float>(extent.parameterBytes ? count : 0)});
    }
  }

  // Adds a number of its own to each state and parameter, as an update of all
  // layouts does.
  void update() {
    for (size_t layout = 0; layout < layouts.size(); ++layout)
      for (int64_t i = 0; i < shards->pieces(layout); ++i)
        updatePiece(layout, i);
  }
  void updatePiece(size_t layout, int64_t number) {
    auto piece = shards->acquire(layout, number);
    ASSERT_TRUE(piece) << piece.error().message;
    ASSERT_EQ(piece->begin, number * pieceElements);
    auto *parameters = reinterpret_cast<float *>(piece->parameters);
    ASSERT_EQ(parameters != nullptr, layouts[layout].parameterBytes > 0);
    ASSERT_EQ(piece->gradient != nullptr, layouts[layout].gradient);
    for (int64_t i = piece->begin; i < piece->end; ++i) {
      for (int32_t state = 0; state < layouts[layout].states; ++state) {
        ++added;
        at(layout, state, i) += added;
        piece->states[state * piece->stride + i - piece->begin] += added;
      }
      if (!parameters)
        continue;
      float gradient = expected[layout].gradient[size_t(i)];
      EXPECT_EQ(piece->gradient[i - piece->begin], gradient);
      expected[layout].parameters[size_t(i)] += gradient;
      parameters[i - piece->begin] += gradient;
    }
    shards->release();
  }
  // Sets elements [begin, begin + count) of the gradient of layout 2.
  void setGradient(int64_t begin, int64_t count) {
    std::vector<float> values;
    for (int64_t i = 0; i < count; ++i)
      values.push_back(++added);
    std::copy(values.begin(), values.end(),
              expected[2].gradient.begin() + begin);
    ASSERT_TRUE(shards->writeGradient(2, begin, count, values.data()));
  }
  float &at(size_t layout, int32_t state, int64_t element) {
    return expected[layout]
        .states[size_t(state * layouts[layout].elements + element)];
  }
  void check() {
    ASSERT_TRUE(shards->flush());
    for (size_t layout = 0; layout < layouts.size(); ++layout) {
      int64_t count = layouts[layout].elements;
      Kept found = expected[layout];
      for (auto *values : {&found.states, &found.gradient, &found.parameters})
        std::fill(values->begin(), values->end(), -1);
      for (int32_t state = 0; state < layouts[layout].states; ++state)
        ASSERT_TRUE(shards->readStates(layout, state, 0, count,
                                       &found.states[size_t(state * count)]));
      if (layouts[layout].gradient) {
        ASSERT_TRUE(
            shards->readGradient(layout, 0, count, found.gradient.data()));
      }
      if (layouts[layout].parameterBytes) {
        ASSERT_TRUE(
            shards->readParameters(layout, 0, count, found.parameters.data()));
      }
      EXPECT_TRUE(found == expected[layout]) << layout;
    }
  }

  static constexpr int64_t pieceElements = 4;
  const std::vector<ShardFile::Extent> layouts = {
      {10, 2}, {}, {7, 1, 4, true}, {5, 0, 4, false, false}};
  TemporaryFolder folder;
  alignas(float) char memory[2 * 4 * 12];
  float added = 0;
  std::unique_ptr<ShardFile> shards;
  std::vector<Kept> expected;
};

TEST_F(Shards, BeginAsZeroesAndHoldWhatUpdatesWrite) {
  EXPECT_EQ(shards->pieces(0), 3);
  EXPECT_EQ(shards->pieces(1), 0);
  EXPECT_EQ(shards->pieces(2), 2);
  EXPECT_EQ(shards->pieces(3), 0);
  check();
  for (int step = 0; step < 5; ++step) {
    update();
    if (step != 2)
      check();
  }
}

// A value set between two updates replaces pieces that are in memory already.
TEST_F(Shards, MayBeSetBetweenUpdates) {
  update();
  const float values[] = {-1, -2, -3, -4, -5};
  ASSERT_TRUE(shards->writeStates(0, 1, 3, 5, values));
  ASSERT_TRUE(shards->writeParameters(2, 2, 5, values));
  ASSERT_TRUE(shards->writeParameters(3, 0, 5, values));
  for (int64_t i = 0; i < 5; ++i) {
    at(0, 1, 3 + i) = values[i];
    expected[2].parameters[size_t(2 + i)] = values[i];
    expected[3].parameters[size_t(i)] = values[i];
  }
  check();
  update();
  check();
}

// A reduction writes gradients after the update has read its first pieces.
TEST_F(Shards, UpdatesTakeTheGradientsOfTheirStep) {
  for (int step = 0; step < 4; ++step) {
    setGradient(0, 7);
    if (step % 2)
      setGradient(1, 3); // a later microbatch
    update();
    check();
  }
  // One layout alone, whose two pieces are both in memory.
  for (int step = 0; step < 3; ++step) {
    setGradient(0, 7);
    updatePiece(2, 0);
    updatePiece(2, 1);
  }
  check();
}

// An edited dump may have its optimizers in another order than its layouts.
TEST_F(Shards, PiecesMayBeTakenInAnyOrder) {
  for (auto [layout, piece] : {std::pair(2, 1), {0, 2}, {0, 0}, {0, 0}, {2, 0}})
    updatePiece(size_t(layout), piece);
  check();
}

TEST(ShardFileTest, OnePieceAloneStaysInMemory) {
  TemporaryFolder folder;
  alignas(float) char memory[32];
  auto shards = ShardFile::make(folder / "", {{3, 1}}, 4, memory);
  ASSERT_TRUE(shards);
  for (float step = 1; step < 4; ++step) {
    auto piece = (*shards)->acquire(0, 0);
    ASSERT_TRUE(piece);
    EXPECT_EQ(piece->states[2], step - 1);
    piece->states[2] = step;
    (*shards)->release();
  }
  float found;
  ASSERT_TRUE((*shards)->readStates(0, 0, 2, 1, &found));
  EXPECT_EQ(found, 3);
}

// The file has no states of the step before when the gradient is replaced.
TEST(ShardFileTest, OnePieceAloneTakesTheGradientOfEachStep) {
  TemporaryFolder folder;
  alignas(float) char memory[48];
  auto shards = ShardFile::make(folder / "", {{3, 1, 0, true}}, 4, memory);
  ASSERT_TRUE(shards);
  for (float step = 1; step < 4; ++step) {
    ASSERT_TRUE((*shards)->writeGradient(0, 2, 1, &step));
    auto piece = (*shards)->acquire(0, 0);
    ASSERT_TRUE(piece);
    EXPECT_EQ(piece->gradient[2], step);
    EXPECT_EQ(piece->states[2], step - 1);
    piece->states[2] = step;
    (*shards)->release();
  }
}

TEST(ShardFileTest, HasNoName) {
  TemporaryFolder folder;
  alignas(float) char memory[32];
  auto shards = ShardFile::make(folder / "", {{8, 1}}, 4, memory);
  ASSERT_TRUE(shards);
  EXPECT_TRUE(std::filesystem::is_empty(folder / ""));
}

TEST(ShardFileTest, RefusesADiskThatIsTooSmallAndAFolderThatIsNotThere) {
  TemporaryFolder folder;
  auto large =
      ShardFile::make(folder / "", {{int64_t(1) << 48, 2}}, 1 << 30, nullptr);
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().message,
              HasSubstr("a file of what is offloaded takes 2048.0 TiB, but '"));
  EXPECT_THAT(large.error().message, HasSubstr("has room for "));
  EXPECT_THAT(large.error().message, HasSubstr("by --offload-dir"));
  auto absent = ShardFile::make(folder / "none", {{8, 1}}, 4, nullptr);
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, HasSubstr("No such file or directory"));
}

TEST(ActivationFileTest, KeepsEachPlace) {
  TemporaryFolder folder;
  auto file = ActivationFile::make(folder / "", 192);
  ASSERT_TRUE(file);
  EXPECT_TRUE(std::filesystem::is_empty(folder / ""));
  const std::string first = "the first", second = "the second";
  ASSERT_TRUE((*file)->write(128, second.data(), int64_t(second.size())));
  ASSERT_TRUE((*file)->write(0, first.data(), int64_t(first.size())));
  std::string read(second.size(), ' ');
  ASSERT_TRUE((*file)->read(128, read.data(), int64_t(read.size())));
  EXPECT_EQ(read, second);
  read.resize(first.size());
  ASSERT_TRUE((*file)->read(0, read.data(), int64_t(read.size())));
  EXPECT_EQ(read, first);
  EXPECT_FALSE((*file)->read(188, read.data(), int64_t(read.size())));
}

TEST(ActivationFileTest, RefusesADiskThatIsTooSmall) {
  TemporaryFolder folder;
  auto large = ActivationFile::make(folder / "", int64_t(1) << 50);
  ASSERT_FALSE(large);
  EXPECT_THAT(large.error().message,
              HasSubstr("a file of what is offloaded takes 1024.0 TiB, but '"));
}

class Offload : public Faults {
protected:
  // Returns losses, norms and saved bytes.
  std::string bits(const std::string &flags, const std::string &environment) {
    return trace(run(flags + outputs, environment));
  }
};

// On any number of ranks, and with a resume of one by the other in between.
TEST_F(Offload, HasTheBitsOfAllInMemory) {
  const std::string all = "TOY_OFFLOAD=optimizer,parameters,gradients ";
  const std::string states = "TOY_OFFLOAD=optimizer ";
  struct Case {
    std::string environment, offload;
  };
  for (const auto &[environment, offload] :
       {Case{"TOY_STRATEGY=zero3 ", all},
        {"TOY_STRATEGY=zero3 TOY_TYPE=bf16 ", all},
        {"TOY_STRATEGY=hybrid ", all},
        {"TOY_STRATEGY=zero1 TOY_TYPE=bf16 ", all},
        {"TOY_STRATEGY=zero1 ", "TOY_OFFLOAD=optimizer,gradients "},
        {"TOY_STRATEGY=ddp ", states},
        {"TOY_STRATEGY=step ", states}})
    for (const char *flags : {"--steps 6 --ranks 2", "--steps 3 --ranks 4"}) {
      std::string inMemory = bits(flags, environment);
      EXPECT_EQ(bits(flags, environment + offload + "TMPDIR=."), inMemory)
          << environment;
    }
}

TEST_F(Offload, IsResumedByAllInMemoryAndBack) {
  const std::string offload =
      "TOY_OFFLOAD=optimizer,parameters,gradients TMPDIR=.";
  ASSERT_EQ(run("--steps 6 --ranks 2 --save out.safetensors").code, 0);
  std::string expected = folder.read("out.safetensors");
  for (const std::string &first : {offload, std::string()}) {
    const std::string &second = first.empty() ? offload : std::string();
    shell("rm -rf c");
    Outcome begun = run("--steps 3 --ranks 2 --checkpoint c "
                        "--checkpoint-every 1",
                        first);
    ASSERT_EQ(begun.code, 0) << begun.err;
    Outcome ended = run("--steps 6 --ranks 2 --checkpoint c --resume "
                        "--save out.safetensors",
                        second);
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(folder.read("out.safetensors"), expected) << first;
  }
}

// The plan has the memory of pieces, and apart from it what is on disk.
TEST_F(Offload, IsInThePlan) {
  ASSERT_EQ(run("--steps 1" + outputs, "TOY_OFFLOAD=optimizer").code, 0);
  nlohmann::json plan = log()[0]["plan"];
  // Shards of 32 and 64 elements, one state each.
  EXPECT_EQ(plan["on disk"], (32 + 64) * 4);
  EXPECT_EQ(plan["offload pieces"], 2 * 64 * 4);
  EXPECT_EQ(plan["optimizer"], 0);
  Outcome info = run("--info", "TOY_OFFLOAD=optimizer");
  EXPECT_THAT(info.out, HasSubstr("  on disk "));
  EXPECT_THAT(info.out, HasSubstr("  offload pieces "));
  Outcome refused = run("--steps 1 --offload-dir .");
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("compile it with --offload"));
}

// A disk that is full or bad ends the run with one line. The file of --save
// stays as it was.
TEST_F(Offload, ADiskThatFailsEndsTheRun) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers must be loaded first";
  folder.write("out.safetensors", "old");
  const std::string onFile = "FAULT_PATH=fsdpc-shards TOY_OFFLOAD=optimizer";
  const std::string onStates = onFile + " ";
  const std::string onAll = onFile + ",parameters,gradients ";
  auto failsOn = [&](const std::string &offload, const std::string &variables,
                     const std::string &message) {
    Outcome outcome = runWith(offload + variables, "--steps 5 --offload-dir . "
                                                   "--save out.safetensors");
    EXPECT_EQ(outcome.code, 3) << variables;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
    EXPECT_EQ(folder.read("out.safetensors"), "old");
    EXPECT_EQ(shell("ls -A | grep fsdpc-shards").out, "") << variables;
  };
  auto fails = [&](const std::string &variables, const std::string &message) {
    failsOn(onStates, variables, message);
  };
  fails("FAULT_CALL=write FAULT_FROM=3 FAULT_ERRNO=28",
        "No space left on device");
  fails("FAULT_CALL=write FAULT_AT=1 FAULT_ERRNO=5", "error: cannot write '");
  fails("FAULT_CALL=read FAULT_FROM=1 FAULT_ERRNO=5", "(tried 4 times)");
  fails("FAULT_ROOM=100",
        "takes 384 B, but '.' has room for 100 B, also for other ranks");
  // The values of the model are the first that are written, by pieces of
  // members, then come gradients and pieces of updates.
  for (int write : {1, 6, 10, 20})
    failsOn(onAll,
            "FAULT_CALL=write FAULT_ERRNO=28 FAULT_FROM=" +
                std::to_string(write),
            "No space left on device");
  for (int read : {1, 5, 20})
    failsOn(onAll,
            "FAULT_CALL=read FAULT_ERRNO=5 FAULT_FROM=" + std::to_string(read),
            "(tried 4 times)");
  // A read that fails once is tried again.
  Outcome passed = runWith(onStates + "FAULT_CALL=read FAULT_AT=1 "
                                      "FAULT_ERRNO=5",
                           "--steps 5 --offload-dir . --save out.safetensors");
  EXPECT_EQ(passed.code, 0) << passed.err;
  EXPECT_THAT(passed.err, HasSubstr("trying again"));
}

} // namespace
