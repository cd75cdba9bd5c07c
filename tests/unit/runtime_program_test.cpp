// Drives a whole program (runtime_toy_program.cpp) as a user does: through its
// command line, judged by exit codes, stderr, the log and the saved files.
// Whatever must not change bits (ranks, threads, launchers, nodes) is compared
// by the printed losses and the saved bytes.
#include "runtime/core/safetensors.h"
#include "runtime/core/weights.h"
#include "tests/unit/runtime_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

using namespace fsdpc;
using namespace fsdpc::runtime;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

namespace {

// Everything that a step needs is allocated before the second one: 400 steps
// allocate as often as 20 do, on every rank. (Commands go around a stream's
// ring in between. A line of --log is formatted in new memory; MPI's own is not
// counted.)
TEST_F(Program, AStepAllocatesNothing) {
  if (sanitized)
    GTEST_SKIP() << "sanitizers replace operator new";
  auto count = [&](const std::string &flags, const std::string &variables,
                   bool mpirun, int steps) {
    std::string all = flags + " --steps " + std::to_string(steps),
                environment = variables + " TOY_ALLOCATIONS=1";
    Outcome outcome = mpirun ? mpi(2, all, environment) : run(all, environment);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::multiset<std::string> counts; // a line per process
    std::istringstream lines(outcome.err);
    for (std::string line; std::getline(lines, line);)
      if (line.rfind("allocations: ", 0) == 0)
        counts.insert(line);
    EXPECT_EQ(counts.size(), mpirun ? 2u : 1u) << outcome.err;
    return counts;
  };
  auto check = [&](const std::string &flags, const std::string &variables = "",
                   bool mpirun = false) {
    EXPECT_EQ(count(flags, variables, mpirun, 20),
              count(flags, variables, mpirun, 400))
        << flags << " " << variables;
  };
  for (const char *strategy : {"zero3", "zero1", "ddp", "step"})
    check("--ranks 2", std::string("TOY_STRATEGY=") + strategy);
  check("--threads 2 --accumulate 2", "TOY_TYPE=bf16");
  check("--ranks 3 --ranks-per-node 2 --accumulate 2");
  check("", "", true);
  check("--ranks-per-node 1", "TOY_STRATEGY=ddp", true);
  check("--ranks 4 --shard-group 2", "TOY_STRATEGY=hybrid");
  check("--ranks-per-node 1 --shard-group 1", "TOY_STRATEGY=hybrid", true);
}

// The log has a header with what decides a run, and one line per step. The
// resident set stays within 64 MiB of the plan.
TEST_F(Program, LogsAHeaderAndEveryStep) {
  Outcome outcome =
      run("--steps 4 --accumulate 2 --lr 0.01 --seed 7" + outputs);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::vector<json> lines = log();
  ASSERT_EQ(lines.size(), 5u);
  const json &header = lines[0];
  EXPECT_FALSE(header.contains("loss"));
  for (const char *key : {"program", "ranks", "threads", "plan",
                          "schedule_hash", "seed", "peak_rss", "compiled_with"})
    EXPECT_TRUE(header.contains(key)) << key;
  EXPECT_EQ(header["seed"], 7);
  EXPECT_EQ(header["plan"]["gathered"], 3 * 4096);
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(lines[i]["step"], i - 1);
    EXPECT_EQ(lines[i]["lr"], 0.01);
    EXPECT_GT(lines[i]["grad_norm"].get<double>(), 0);
    EXPECT_GT(lines[i]["tokens_per_s"].get<double>(), 0);
    for (const char *key : {"loss", "step_ms", "exposed_comm_ms", "peak_bytes"})
      EXPECT_TRUE(lines[i].contains(key)) << key;
    EXPECT_TRUE(sanitized ||
                lines[i]["peak_rss_minus_plan"].get<int64_t>() < 64 << 20);
  }
  EXPECT_THAT(outcome.err, HasSubstr("1 rank, "));
  EXPECT_THAT(outcome.err, HasSubstr("done: 4 steps"));
}

// The trace of the last eight steps of each rank has every command of every
// stream under the manifest's name, with the bytes that depend on the number of
// ranks filled in.
TEST_F(Program, TracesTheLastSteps) {
  ASSERT_EQ(run("--steps 10 --ranks 2 --accumulate 2 --trace t.json").code, 0);
  for (int rank = 0; rank < 2; ++rank) {
    json trace =
        json::parse(folder.read("t." + std::to_string(rank) + ".json"));
    std::map<std::string, int> counts;
    for (const json &event : trace["traceEvents"]) {
      EXPECT_EQ(event["pid"], rank);
      if (event["ph"] != "X")
        continue;
      ++counts[event["name"]];
      EXPECT_GE(event["args"]["step"], 2);
      EXPECT_GE(event["dur"], 0);
      if (event["name"] == "forward_backward toy") {
        EXPECT_EQ(event["tid"], 0);
        EXPECT_EQ(event["args"]["bytes"], 1000);
        EXPECT_EQ(event["args"]["node"], "node");
      }
      if (event["name"] == "optimizer root") {
        EXPECT_EQ(event["args"]["bytes"], 32 * 4 * 5);
      }
    }
    EXPECT_EQ(counts["microbatch"], 16);
    EXPECT_EQ(counts["update"], 8);
    EXPECT_EQ(counts["forward_backward toy"], 16);
    EXPECT_EQ(counts["update_statistics running toy"], 16);
    EXPECT_EQ(counts["optimizer embed"], 8);
    EXPECT_GE(counts["wait for gather"], 16);
  }
}

// Tracing only stores times, so it must not change a result.
TEST_F(Program, TraceChangesNoBits) {
  std::string expected = trace(run("--steps 3" + outputs));
  EXPECT_EQ(trace(run("--steps 3 --trace t.json" + outputs)), expected);
  EXPECT_TRUE(json::parse(folder.read("t.json")).contains("traceEvents"));
  Outcome outcome = run("--steps 3 --trace absent/t.json");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("absent/t.json"));
}

// --manifest needs no data, so that tools can ask any program what it is.
TEST_F(Program, PrintsItsManifest) {
  Outcome outcome = shell(TOY_PROGRAM " --manifest");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(json::parse(outcome.out)["optimizer"], "sgd");
}

// Without an input of tokens, a rate in tokens would mean nothing.
TEST_F(Program, RateIsInSamplesWithoutTokens) {
  ASSERT_EQ(run("--steps 1 --log log", "TOY_TOKENS=").code, 0);
  EXPECT_TRUE(log()[1].contains("samples_per_s"));
}

// The loss falls, the frozen parameter is unchanged, and counters count.
TEST_F(Program, Trains) {
  ASSERT_EQ(run("--steps 60 --ranks 2" + outputs).code, 0);
  std::vector<json> lines = log();
  double first = 0, last = 0; // an epoch is ten steps
  for (size_t i = 1; i <= 10; ++i) {
    first += lines[i]["loss"].get<double>();
    last += lines[50 + i]["loss"].get<double>();
  }
  EXPECT_LT(last, first);
  EXPECT_EQ(saved("out.safetensors", "scale")[0], 1);
  auto tensors = SafeTensors::open(folder / "out.safetensors");
  ASSERT_TRUE(tensors) << tensors.error().message;
  // Readers refuse a file that is longer than its last tensor (bytes 68 to 80).
  // A buffer's memory is longer than its value.
  std::string file = folder.read("out.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof header);
  EXPECT_EQ(file.size(), sizeof header + header + 80);
  int64_t batches = 0;
  ASSERT_TRUE(
      tensors->file().read(tensors->find("batches", {})->offset, &batches, 8));
  EXPECT_EQ(batches, 120);
  EXPECT_EQ(tensors->find("head.table", {}), tensors->find("table", {}));
}

// Microbatches do not depend on how V splits into N and K, so the first losses
// have the same bits, and training stays close.
TEST_F(Program, RanksAndAccumulationTrade) {
  std::string flags = "--steps 5 --shuffle --seed 3" + outputs;
  std::vector<std::vector<double>> losses;
  for (const char *split :
       {"--ranks 1 --accumulate 6", "--ranks 2 --accumulate 3",
        "--ranks 3 --accumulate 2"}) {
    ASSERT_EQ(run(flags + " " + split).code, 0);
    losses.emplace_back();
    for (const json &line : log())
      if (line.contains("loss"))
        losses.back().push_back(line["loss"]);
  }
  for (auto &other : losses) {
    EXPECT_EQ(other[0], losses[0][0]);
    for (size_t i = 0; i < 5; ++i)
      EXPECT_NEAR(other[i], losses[0][i], 1e-5 * losses[0][i]);
  }
}

// For a given number of ranks, nothing about how they run may change a bit:
// strategy, threads, virtual nodes, launcher, transport.
TEST_F(Program, BitsDoNotDependOnStrategyThreadsOrBackend) {
  for (const char *k : {"1", "3"}) {
    std::string flags =
        "--steps 6 --shuffle --accumulate " + std::string(k) + outputs;
    std::string reference =
        trace(run(flags + " --ranks 3 --threads 1", "TOY_STRATEGY=zero3"));
    for (const char *strategy : {"zero1", "ddp"})
      EXPECT_EQ(trace(run(flags + " --ranks 3",
                          std::string("TOY_STRATEGY=") + strategy)),
                reference)
          << strategy;
    EXPECT_EQ(trace(run(flags + " --ranks 3 --threads 2")), reference);
    EXPECT_EQ(trace(run(flags + " --ranks 3 --ranks-per-node 2")), reference);
    EXPECT_EQ(trace(mpi(3, flags)), reference);
    EXPECT_EQ(trace(mpi(3, flags + " --ranks-per-node 2")), reference);
    EXPECT_EQ(trace(torchrun(3, flags)), reference);
    const std::string hybrid = "TOY_STRATEGY=hybrid";
    for (const char *group :
         {" --shard-group 1", " --shard-group 3", " --ranks-per-node 1"}) {
      EXPECT_EQ(trace(run(flags + " --ranks 3" + group, hybrid)), reference);
      EXPECT_EQ(trace(mpi(3, flags + group, hybrid)), reference);
      EXPECT_EQ(trace(torchrun(3, flags + group, {hybrid, hybrid, hybrid})),
                reference);
    }
  }
}

// The size of shard groups is known at start: a flag, or the ranks of a node.
TEST_F(Program, GroupsAreChosenAtStart) {
  const std::string hybrid = "TOY_STRATEGY=hybrid";
  auto check = [&](const std::string &flags, int code, const char *message) {
    Outcome outcome = run("--steps 1 " + flags, hybrid);
    EXPECT_EQ(outcome.code, code) << flags;
    EXPECT_THAT(outcome.err, HasSubstr(message)) << flags;
  };
  check("--ranks 4 --shard-group 2", 0, "hybrid in groups of 2 ranks");
  check("--ranks 4 --ranks-per-node 2", 0, "hybrid in groups of 2 ranks");
  check("--ranks 4", 0, "hybrid in groups of 4 ranks");
  check("", 0, "hybrid in groups of 1 rank,");
  check("--ranks 4 --shard-group 3", 2,
        "--shard-group '3' does not divide the job's 4 ranks");
  check("--ranks 4 --shard-group 0", 2, "--shard-group");
  check("--ranks 3 --ranks-per-node 2", 3,
        "the nodes have from 1 to 2 of the 3 ranks");
  Outcome plain = run("--steps 1 --shard-group 1");
  EXPECT_EQ(plain.code, 2);
  EXPECT_THAT(plain.err, HasSubstr("'--shard-group' has no effect"));
  EXPECT_THAT(
      run("--info --shard-group 2", hybrid).out,
      HasSubstr("  shard group              1           2           2"));
}

// A slow link between nodes is a number.
TEST_F(Program, SlowLinksAreChecked) {
  const std::string flags = "--steps 2 --ranks 2 --ranks-per-node 1" + outputs;
  std::string reference = trace(run(flags));
  EXPECT_EQ(trace(run(flags, "FSDPC_CROSS_NODE_GBS=0.01")), reference);
  for (const char *rate : {"0", "-1", "fast", "1x", "inf", "nan"}) {
    Outcome outcome = run(flags, std::string("FSDPC_CROSS_NODE_GBS=") + rate);
    EXPECT_EQ(outcome.code, 3) << rate;
    EXPECT_THAT(outcome.err, HasSubstr("'" + std::string(rate) + "'"));
  }
}

// In bf16 too, whether gradients are sent in f32 or in bf16.
TEST_F(Program, BitsDoNotDependOnStrategyInBf16) {
  std::string flags = "--steps 6 --ranks 3 --accumulate 2" + outputs;
  for (const char *reduce : {"f32", "bf16"}) {
    std::string types = std::string("TOY_TYPE=bf16 TOY_REDUCE=") + reduce;
    std::string reference = trace(run(flags, types));
    EXPECT_EQ(trace(run(flags, types + " TOY_STRATEGY=zero1")), reference);
    EXPECT_EQ(trace(run(flags, types + " TOY_STRATEGY=ddp")), reference);
  }
}

// --reduce=step sums over microbatches first: close results with different
// bits.
TEST_F(Program, ReducesOnceAStep) {
  std::string flags = "--steps 6 --ranks 2 --accumulate 3" + outputs;
  ASSERT_EQ(run(flags).code, 0);
  double loss = log()[6]["loss"];
  ASSERT_EQ(run(flags, "TOY_STRATEGY=step").code, 0);
  EXPECT_NEAR(log()[6]["loss"].get<double>(), loss, 1e-5);
}

// Statistics see the microbatches in the order of j, whichever rank has them.
TEST_F(Program, RunningStatisticsDoNotDependOnRanks) {
  std::vector<float> first;
  for (const char *split :
       {"--ranks 1 --accumulate 6", "--ranks 2 --accumulate 3",
        "--ranks 3 --accumulate 2"}) {
    ASSERT_EQ(
        run("--steps 2 --save out.safetensors " + std::string(split)).code, 0);
    std::vector<float> running = saved("out.safetensors", "running");
    if (first.empty())
      first = running;
    EXPECT_EQ(running, first);
  }
}

// The saved gradients are means over the V microbatches, have the logged norm,
// and leave out frozen parameters.
TEST_F(Program, SavesTheFirstStepsMeanGradients) {
  ASSERT_EQ(run("--steps 2 --ranks 1 --accumulate 4 --log log "
                "--save-gradients g.safetensors")
                .code,
            0);
  std::vector<float> one = saved("g.safetensors", "table");
  double squares = 0;
  for (const char *name : {"table", "weight", "bias"})
    for (float g : saved("g.safetensors", name))
      squares += double(g) * g;
  EXPECT_NEAR(std::sqrt(squares), log()[1]["grad_norm"].get<double>(), 1e-6);
  EXPECT_TRUE(saved("g.safetensors", "scale").empty());
  ASSERT_EQ(run("--steps 2 --ranks 4 --save-gradients g.safetensors").code, 0);
  std::vector<float> four = saved("g.safetensors", "table");
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_NEAR(one[i], four[i], 1e-6);
}

// A saved file restores every parameter exactly, on another number of ranks.
TEST_F(Program, InitContinuesFromASavedFile) {
  ASSERT_EQ(run("--steps 3 --ranks 2 --save a.safetensors").code, 0);
  ASSERT_EQ(run("--steps 1 --lr 0 --ranks 3 --init a.safetensors --save "
                "b.safetensors")
                .code,
            0);
  for (const char *name : {"table", "weight", "bias", "scale"})
    EXPECT_EQ(saved("a.safetensors", name), saved("b.safetensors", name));
}

// --init finds tensors by alias and converts f64, warns of tensors that the
// program does not have, and refuses wrong shapes and missing tensors.
TEST_F(Program, InitFindsAliasesAndChecksShapes) {
  auto write = [&](const char *table, std::vector<int64_t> shape,
                   const char *dtype = "f64") {
    SafeTensorsHeader header;
    uint64_t bytes = header.add(table, dtype, shape, {});
    for (auto &[name, size] :
         {std::pair("weight", 3), std::pair("bias", 1), std::pair("scale", 1)})
      bytes = header.add(name, "f32", {size}, {}) + uint64_t(size) * 4;
    header.add("stranger", "u8", {1}, {});
    folder.write("i.safetensors", header.text() + std::string(bytes + 1, '\0'));
  };
  std::string flags = "--steps 1 --init i.safetensors";
  write("head.table", {10});
  Outcome outcome = run(flags + " --ranks 2 --lr 0 --save out.safetensors");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(saved("out.safetensors", "table"), std::vector<float>(10));
  EXPECT_THAT(outcome.err,
              HasSubstr("warning: 'i.safetensors' contains tensors "
                        "that the program does not use: 'stranger'"));
  write("table", {2, 5});
  outcome = run(flags);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("has 'table' as f64[2, 5]"));
  write("table", {10}, "i32");
  outcome = run(flags);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("has 'table' as i32[10], but the program "
                                     "needs floats of shape [10]"));
  write("tablet", {10});
  outcome = run(flags);
  EXPECT_THAT(outcome.err,
              HasSubstr("has no tensor 'table'; the nearest is 'tablet'"));
}

// The model's own files may move (--weights), but not change: their hashes were
// taken by the compiler.
TEST_F(Program, WeightsMoveAndChange) {
  std::string far = "TOY_FOLDER=elsewhere/models";
  Outcome outcome = run("--steps 1 --ranks 2", far);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("the weights of 'weight' are missing"));
  EXPECT_THAT(outcome.err, HasSubstr("--weights DIR"));
  EXPECT_EQ(run("--steps 1 --ranks 2 --weights .", far).code, 0);
  folder.write("weights.bin", std::string(20, '\1'));
  for (const char *ranks : {"1", "3"}) {
    outcome = run("--steps 1 --ranks " + std::string(ranks));
    EXPECT_EQ(outcome.code, 3);
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("'weight' in './weights.bin' changed "
                                       "since compiling"));
  }
  folder.write("weights.bin", "short");
  EXPECT_THAT(run("--steps 1").err, HasSubstr("changed since compiling"));
  outcome = run("--steps 1", "TOY_TABLE=none");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("parameter 'table' has no initial value"));
}

// Whatever is wrong with the data, however ranks were started, the whole job
// prints one error line and ends with 3.
TEST_F(Program, BadDataEndsEveryRankWithOneLine) {
  struct {
    std::string ids, message;
  } cases[] = {
      {npy<float>("<f4", "(40, 3)", 120),
       "contains f32, but input 'ids' is i64"},
      {npy<int64_t>("<i8", "(40, 2)", 80), "has shape [40, 2]"},
      {npy<int64_t>("<i8", "(40, 3)", 120), "sample 3 element 1: 10 is outside "
                                            "[0, 10) of input 'ids'"},
      {npy<uint8_t>("|u1", "(3, 3)", 9),
       "have different numbers of samples: 'ids.npy' has 3, 'target.npy' has "
       "40"},
      {"not numpy", "is not a .npy file"},
  };
  for (auto &[ids, message] : cases) {
    folder.write("ids.npy", ids);
    for (auto &outcome : {run("--steps 3 --ranks 3"), mpi(3, "--steps 3"),
                          torchrun(3, "--steps 3")}) {
      EXPECT_EQ(outcome.code, 3) << outcome.err;
      EXPECT_EQ(outcome.errors(), 1) << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr(message));
    }
  }
}

// With a bad id in the middle of the run, the steps before it are logged.
TEST_F(Program, BadDataLaterStopsAtItsStep) {
  std::string ids = folder.read("ids.npy");
  int32_t bad = 77;
  std::memcpy(&ids[128 + 21 * 12], &bad, 4); // sample 21: in step 3 if V = 3
  folder.write("ids.npy", ids);
  for (auto &outcome :
       {run("--steps 9 --ranks 3 --log log"), mpi(3, "--steps 9 --log log")}) {
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("sample 21 element 0: 77"));
    EXPECT_EQ(log().size(), 4u); // the header and steps 0, 1, 2
  }
}

// An infinite target gives an infinite loss. The message names the step, and
// the data before the learning rate.
TEST_F(Program, NonFiniteLossNamesStepAndData) {
  setTarget(13, INFINITY); // in step 2 if V = 3
  for (auto &outcome : {run("--steps 9 --ranks 3"), mpi(3, "--steps 9")}) {
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err,
                HasSubstr("error: step 2: the loss is inf; input 'target' has "
                          "inf in its data: 'target.npy' sample 13 element 0; "
                          "correct it, or if it is meant, as in a mask, use a "
                          "lower --lr"));
  }
}

// A large target gives an infinite loss too, and the first unit whose gradient
// is not finite is named.
TEST_F(Program, NonFiniteLossNamesStepAndUnit) {
  setTarget(13, 1e38f); // in step 2 if V = 3
  Outcome outcome = run("--steps 9 --ranks 3");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_EQ(outcome.errors(), 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("error: step 2: the loss is inf; "));
  EXPECT_THAT(outcome.err, HasSubstr("lower --lr or a longer warmup"));
}

// An error of 1e10 gives a finite loss of 1e20, but times weights of 1e38 an
// infinite gradient of the table.
TEST_F(Program, NonFiniteGradientNamesStepAndUnit) {
  SafeTensorsHeader header;
  std::string data;
  auto add = [&](const char *name, std::vector<float> values) {
    header.add(name, "f32", {int64_t(values.size())}, {});
    data.append(reinterpret_cast<char *>(values.data()), values.size() * 4);
  };
  add("table", std::vector<float>(10, 1e-20f));
  add("weight", {1e38f, 1e38f, 1e38f});
  add("bias", {1e10f});
  add("scale", {1});
  folder.write("i.safetensors", header.text() + data);
  Outcome outcome = run("--steps 2 --ranks 2 --init i.safetensors");
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("step 0: the gradient is not finite; "
                                     "first unit with a non-finite gradient: "
                                     "'embed'"));
}

// A microbatch without valid targets counts as loss 0. One warning per run,
// since there may be many.
TEST_F(Program, NoValidTargetCountsZeroAndWarnsOnce) {
  std::string ids = folder.read("ids.npy");
  int32_t ignored = -100;
  for (int sample = 0; sample < 4; ++sample) // microbatches 0 and 1
    std::memcpy(&ids[128 + size_t(sample) * 12], &ignored, 4);
  folder.write("ids.npy", ids);
  Outcome outcome = run("--steps 2 --ranks 2 --log log");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(log()[1]["loss"], 0);
  EXPECT_GT(log()[2]["loss"], 0);
  size_t first = outcome.err.find("has no valid target");
  EXPECT_NE(first, std::string::npos);
  EXPECT_EQ(outcome.err.find("has no valid target", first + 1),
            std::string::npos);
}

// A limit on the size of files stands for a full disk. The old file stays, and
// nothing else is left behind.
TEST_F(Program, FullDiskKeepsTheOldFile) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the limit ends the sanitizer itself, before main";
#endif
  folder.write("out.safetensors", "old");
  Outcome outcome =
      shell("bash -c 'set -o pipefail; (ulimit -f 0; " TOY_PROGRAM
            " --data ids=ids.npy --data target=target.npy --steps 1 --ranks 2 "
            "--save out.safetensors) 2>&1 | cat >&2'");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("error: cannot save 'out.safetensors'"));
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_EQ(folder.read("out.safetensors"), "old");
  EXPECT_NE(shell("ls -A | grep tmp-").code, 0);
}

// Outputs that cannot be written are noticed before training, not after.
TEST_F(Program, UnwritablePathsFailBeforeTraining) {
  for (const char *flags :
       {"--save no/such/folder.safetensors", "--save /dev/full",
        "--save-gradients no/g", "--log no/log"}) {
    Outcome outcome = run("--steps 2 --ranks 2 " + std::string(flags));
    EXPECT_EQ(outcome.code, 3) << flags;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, Not(HasSubstr("ranks")));
  }
  Outcome outcome = run("--steps 2 --ranks 2 --log /dev/full");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("cannot write '/dev/full'"));
}

// Mistakes in the command line end with 2, and one rank reports them.
TEST_F(Program, CommandLineFaultsEndWithTwo) {
  for (auto &outcome : {run("--stepz 3 --ranks 2"), mpi(2, "--stepz 3")}) {
    EXPECT_EQ(outcome.code, 2) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err,
                HasSubstr("unknown flag '--stepz'; did you mean '--steps'?"));
  }
  Outcome outcome = mpi(2, "--steps 1 --ranks 2");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.errors(), 1);
}

TEST_F(Program, HelpAndInfo) {
  Outcome outcome = run("--help");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.out, HasSubstr("--lr-schedule"));
  outcome = run("--info");
  EXPECT_EQ(outcome.code, 0);
  for (const char *part : {"0123456789abcdef", "toy --strategy=zero3", "table",
                           "= head.table", "frozen", "total"})
    EXPECT_THAT(outcome.out, HasSubstr(part));
}

// The program refuses more memory, more ranks or a lesser processor than it was
// compiled for.
TEST_F(Program, LimitsAreKept) {
  Outcome outcome = run("--steps 1 --ranks 2", "TOY_LIMIT=1000");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("exceeds --memory-limit of 1000 bytes; "
                                     "largest: "));
  outcome = run("--steps 1 --ranks 9");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err, HasSubstr("9 ranks exceed the maximum of 8"));
  outcome = run("--steps 1", "TOY_FEATURE=avx9000");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_THAT(outcome.err,
              HasSubstr("this processor does not support 'avx9000'"));
}

// A process that is announced as one of two ranks, but cannot find the other,
// must not train as if it were alone.
TEST_F(Program, AnUnjoinedLauncherIsRefused) {
  Outcome outcome = run("--steps 1", "WORLD_SIZE=2 RANK=0 LOCAL_RANK=0");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("WORLD_SIZE=2"));
  EXPECT_THAT(outcome.err, HasSubstr("MASTER_ADDR is not set"));
  // Another rank by itself says so too: nobody else would.
  for (const char *rank : {"WORLD_SIZE=2 RANK=1", "WORLD_SIZE=2 RANK=1 "
                                                  "LOCAL_RANK=1"}) {
    outcome = run("--steps 1", rank);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_EQ(outcome.errors(), 1);
  }
}

// A variable that is not quite a number is refused, where atoi would read one
// and the process train alone, or as a rank that does not exist.
TEST_F(Program, VariablesOfLaunchersAreParsedStrictly) {
  struct {
    const char *environment, *message;
  } cases[] = {
      {"WORLD_SIZE='2 ' RANK=0", "WORLD_SIZE='2 ' is not a whole number"},
      {"WORLD_SIZE=2 RANK=0x0", "RANK='0x0' is not a whole number"},
      {"WORLD_SIZE=2 RANK=5", "RANK=5 does not match WORLD_SIZE=2"},
      {"WORLD_SIZE=0 RANK=0", "WORLD_SIZE='0' is not a whole number from 1"},
      {"WORLD_SIZE=2 RANK=0 MASTER_ADDR=localhost MASTER_PORT=70000",
       "MASTER_PORT='70000' is not a whole number from 1 to 65535"},
      {"WORLD_SIZE=2 RANK=0 MASTER_ADDR=localhost MASTER_PORT=65535 "
       "TORCHELASTIC_USE_AGENT_STORE=True",
       "MASTER_PORT='65535' is not a whole number from 1 to 65534"},
      {"FSDPC_PORT=http", "FSDPC_PORT='http' is not a whole number"},
      {"FSDPC_JOIN_SECONDS=-1", "FSDPC_JOIN_SECONDS='-1' is not"},
      {"SLURM_NTASKS=2x SLURM_PROCID=0", "SLURM_NTASKS='2x' is not"},
  };
  for (auto &[environment, message] : cases) {
    Outcome outcome = run("--steps 1", environment);
    EXPECT_EQ(outcome.code, 3) << environment;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
  // Variables that announce no rank say nothing about this process.
  for (const char *harmless : {"RANK=worker-3", "WORLD_SIZE=", "SLURM_NTASKS=8",
                               "SLURM_NTASKS=1 SLURM_PROCID=0 SLURM_JOB_ID=7 "
                               "SLURM_STEP_ID=4294967291"})
    EXPECT_EQ(run("--steps 1", harmless).code, 0) << harmless;
}

// Rank 0 names the ranks that do not connect in time.
TEST_F(Program, ATorchrunWhoseRanksDoNotComeEnds) {
  Outcome outcome =
      run("--steps 1", "WORLD_SIZE=2 RANK=0 LOCAL_RANK=0 MASTER_ADDR=localhost "
                       "MASTER_PORT=20999 FSDPC_JOIN_SECONDS=1");
  EXPECT_EQ(outcome.code, 3);
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("rank 1 of 2 (torchrun, WORLD_SIZE=2"));
}

// torchrun tells each process its rank, so only rank 0 reports a mistake.
TEST_F(Program, MistakesUnderTorchrunAreSaidOnce) {
  Outcome outcome = torchrun(2, "--stepps 1");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(outcome.errors(), 1) << outcome.err;
}

// If the ranks of a job run different programs, or different schedules of one,
// all end before training.
TEST_F(Program, AnotherProgramOnARankIsNamed) {
  const std::string variables[] = {"TOY_PROGRAM_HASH=1111",
                                   "TOY_SCHEDULE_HASH=2222"};
  const std::string expected[] = {"rank 1 runs a different program than rank "
                                  "0: its program hash is '1111', "
                                  "rank 0's is 'fedcba9876543210'",
                                  "rank 1 runs a different schedule than rank "
                                  "0: its schedule hash is '2222', "
                                  "rank 0's is '0123456789abcdef'"};
  for (size_t i = 0; i < 2; ++i) {
    std::string other =
        " -np 1 env " + variables[i] +
        " " TOY_PROGRAM
        " --data ids=ids.npy --data target=target.npy --steps 1";
    for (auto &outcome : {mpi(1, "--steps 1 :" + other),
                          torchrun(2, "--steps 1", {"", variables[i]})}) {
      EXPECT_EQ(outcome.code, 3) << outcome.err;
      EXPECT_EQ(outcome.errors(), 1) << outcome.err;
      EXPECT_THAT(outcome.err, HasSubstr(expected[i]));
    }
  }
}

// Ranks whose options or data differ would wait forever, or learn something
// that no number of equal ranks would. The first difference is named.
TEST_F(Program, RanksThatDifferAreNamed) {
  std::string other = folder.read("ids.npy");
  other[128] = 3; // the first id, which is 0
  folder.write("other.npy", other);
  folder.write("few.npy", npy<int32_t>("<i4", "(12, 3)", 36, 1));
  std::string few = folder.read("few.npy");
  std::fill(few.begin() + 128, few.end(), 0);
  folder.write("few.npy", few);
  folder.write("few_target.npy", npy<float>("<f4", "(12,)", 12));
  struct {
    const char *ids, *flags, *message;
  } cases[] = {
      {"ids", "--steps 4", "--steps is '4' on rank 1 and '3' on rank 0"},
      {"ids", "--steps 3 --accumulate 2", "--accumulate is '2' on rank 1"},
      {"ids", "--steps 3 --lr 0.5", "--lr is '0.5' on rank 1"},
      {"ids", "--steps 3 --seed 7", "--seed is '7' on rank 1 and '0'"},
      {"ids", "--steps 3 --shuffle", "--shuffle is 'on' on rank 1 and 'off'"},
      {"few", "--steps 3", "the number of samples is '12' on rank 1 and '40'"},
      {"other", "--steps 3", "the hash of the samples of input 'ids' is "},
  };
  for (auto &[ids, flags, message] : cases) {
    std::string target = ids == std::string("few") ? "few_target" : "target";
    Outcome outcome =
        mpi(1, "--steps 3 : -np 1 " TOY_PROGRAM " --data target=" + target +
                   ".npy --data ids=" + ids + ".npy " + flags);
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(message));
  }
}

// More threads than cores is slow but legal: a warning.
TEST_F(Program, WarnsOfMoreThreadsThanCores) {
  EXPECT_THAT(run("--steps 1 --threads 64").err,
              HasSubstr("warning: each rank has 64 threads but"));
}

} // namespace
