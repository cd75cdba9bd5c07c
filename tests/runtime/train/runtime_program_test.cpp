// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Drives a whole program (runtime_toy_program.cpp) as a user does: through its
// command line, judged by exit codes, stderr, the log and the saved files.
// Whatever must not change bits (ranks, threads, launchers, nodes) is compared
// by the printed losses and the saved bytes.
#include "runtime/data/safetensors.h"
#include "runtime/data/weights.h"
#include "tests/runtime/train/runtime_program.h"

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
    Outcome outcome;
    // On a busy machine a rank may be slow, and a warning allocates.
    for (int attempt = 0; attempt < 5; ++attempt) {
      outcome = mpirun ? mpi(2, all, environment) : run(all, environment);
      if (outcome.err.find("has been slow") == std::string::npos)
        break;
    }
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
  check("--ranks 2", "TOY_OFFLOAD=optimizer,parameters,gradients");
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
      run("--steps 4 --accumulate 2 --threads 1 --lr 0.01 --seed 7" + outputs);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::vector<json> lines = log();
  ASSERT_EQ(lines.size(), 5u);
  const json &header = lines[0];
  EXPECT_FALSE(header.contains("loss"));
  for (const char *key : {"program", "ranks", "threads", "plan",
                          "schedule_hash", "seed", "peak_rss", "compiled_with"})
    EXPECT_TRUE(header.contains(key)) << key;
  EXPECT_EQ(header["seed"], 7);
  // Two microbatches of 1000 µs and an update of 500, as the manifest says.
  EXPECT_EQ(header["predicted_step_ms"], 2.5);
  EXPECT_EQ(header["plan"]["gathered"], 3 * 4096);
  for (size_t i = 1; i < 5; ++i) {
    EXPECT_EQ(lines[i]["step"], i - 1);
    EXPECT_EQ(lines[i]["lr"], 0.01);
    EXPECT_GT(lines[i]["grad_norm"].get<double>(), 0);
    EXPECT_GT(lines[i]["tokens_per_s"].get<double>(), 0);
    for (const char *key :
         {"loss", "step_ms", "exposed_comm_ms", "resident_bytes"})
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
  EXPECT_EQ(outcome.code, 1);
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
    for (const std::string name : {"hybrid", "resharded"})
      for (const char *group :
           {" --shard-group 1", " --shard-group 3", " --ranks-per-node 1"}) {
        std::string toy = "TOY_STRATEGY=" + name;
        EXPECT_EQ(trace(run(flags + " --ranks 3" + group, toy)), reference);
        EXPECT_EQ(trace(mpi(3, flags + group, toy)), reference);
        EXPECT_EQ(trace(torchrun(3, flags + group, {toy, toy, toy})),
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
  check("--ranks 3 --ranks-per-node 2", 2,
        "the nodes have from 1 to 2 of the 3 ranks");
  // The groups of --reshard-to, unless the program is given others.
  Outcome resharded =
      run("--steps 1 --ranks 4", "TOY_STRATEGY=resharded TOY_RESHARD_TO=2");
  EXPECT_THAT(resharded.err, HasSubstr("resharded to groups of 2 ranks"));
  resharded = run("--steps 1 --ranks 4 --shard-group 4",
                  "TOY_STRATEGY=resharded TOY_RESHARD_TO=2");
  EXPECT_THAT(resharded.err, HasSubstr("resharded to groups of 4 ranks"));
  resharded =
      run("--steps 1 --ranks 4", "TOY_STRATEGY=resharded TOY_RESHARD_TO=3");
  EXPECT_EQ(resharded.code, 2);
  EXPECT_THAT(resharded.err,
              HasSubstr("--reshard-to '3' does not divide the job's 4 ranks"));
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
    EXPECT_EQ(outcome.code, 1) << rate;
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

// A mixture is a function of the seed and the sample's number: the same bits on
// one rank, on two, and resumed on four.
TEST_F(Program, MixesAlikeAtEveryNumberOfRanks) {
  folder.write("ids2.npy", folder.read("ids.npy"));
  folder.write("target2.npy", npy<float>("<f4", "(40,)", 40));
  auto mixed = [&](const std::string &flags) {
    return trace(shell(TOY_PROGRAM
                       " --data ids=ids.npy,ids2.npy"
                       " --data target=target.npy,target2.npy --shuffle"
                       " --lr 1e-4 --log log --save out.safetensors " +
                       flags));
  };
  std::string one = mixed("--mix 0.7,0.3 --steps 6 --accumulate 4");
  EXPECT_EQ(mixed("--mix 0.7,0.3 --steps 6 --accumulate 2 --ranks 2"), one);
  mixed("--mix 7,3 --steps 4 --accumulate 2 --ranks 2 --checkpoint c");
  EXPECT_EQ(mixed("--mix 0.7,0.3 --steps 6 --ranks 4 --checkpoint c --resume"),
            one);
  EXPECT_NE(mixed("--mix 0.3,0.7 --steps 6 --accumulate 4"), one);
  EXPECT_NE(mixed("--steps 6 --accumulate 4"), one);
  EXPECT_EQ(shell(TOY_PROGRAM " --mix 1,0").code, 2);
  EXPECT_THAT(folder.read("err"), HasSubstr("'0' is not a weight above 0"));
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

// A file may hold a tied parameter under each of its names: equal values pass
// in silence, and different ones are refused by both names.
TEST_F(Program, InitTakesEqualTiedValuesOnly) {
  auto write = [&](char lastOfHead, const char *dtype) {
    SafeTensorsHeader header;
    header.add("head.table", "f32", {10}, {});
    uint64_t bytes = header.add("table", dtype, {10}, {});
    std::string values(bytes, '\0');
    values.back() = lastOfHead;
    for (auto &[name, size] :
         {std::pair("weight", 3), std::pair("bias", 1), std::pair("scale", 1)})
      bytes = header.add(name, "f32", {size}, {}) + uint64_t(size) * 4;
    values.resize(bytes);
    folder.write("i.safetensors", header.text() + values);
  };
  std::string flags = "--steps 1 --ranks 2 --init i.safetensors";
  write(0, "f32");
  Outcome outcome = run(flags);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, Not(HasSubstr("warning")));
  write(1, "f32");
  outcome = run(flags);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("'table' and 'head.table' of "
                                     "'i.safetensors' differ"));
  write(0, "f64");
  EXPECT_EQ(run(flags).code, 1);
}

// --init finds tensors by alias and converts f64, warns of tensors that the
// program does not have, and refuses wrong shapes and missing tensors.
TEST_F(Program, InitFindsAliasesAndChecksShapes) {
  auto write = [&](const char *table, const std::vector<int64_t> &shape,
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
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("has 'table' as f64[2, 5]"));
  write("table", {10}, "i32");
  outcome = run(flags);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("has 'table' as i32[10], but the program "
                                     "needs floats of shape [10]"));
  write("tablet", {10});
  outcome = run(flags);
  EXPECT_THAT(outcome.err,
              HasSubstr("has no tensor 'table'; the nearest is 'tablet'"));
}

// The names of a wrapped model begin with a prefix that a checkpoint lacks, and
// the other way round. Where one prefix makes all names fit, it is taken and
// said; where several do, the error shows the flag that decides.
TEST_F(Program, InitMatchesOnePrefix) {
  auto write = [&](const std::vector<std::string> &prefixes) {
    SafeTensorsHeader header;
    for (const std::string &prefix : prefixes)
      for (auto &[name, size] : {std::pair("table", 10), std::pair("weight", 3),
                                 std::pair("bias", 1), std::pair("scale", 1)})
        header.add(prefix + name, "f32", {size}, {});
    folder.write("i.safetensors",
                 header.text() + std::string(60 * prefixes.size(), '\0'));
  };
  std::string flags = "--steps 1 --lr 0 --init i.safetensors --save out";
  write({"model."});
  Outcome outcome = run(flags + " --ranks 2");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("'i.safetensors' has the names of the "
                                     "parameters with 'model.' in front\n"));
  EXPECT_EQ(saved("out", "table"), std::vector<float>(10));
  write({"a.", "b."});
  outcome = run(flags);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err,
              HasSubstr("'i.safetensors' has the program's parameters under 2 "
                        "prefixes; say which is meant with '--rename=a.=' or "
                        "'--rename=b.='"));
  EXPECT_EQ(run(flags + " --rename=b.=").code, 0);
  outcome = run(flags + " --rename=c.=");
  EXPECT_THAT(outcome.err, HasSubstr("has no tensor 'table'"));
  write({"pre"}); // no whole component
  EXPECT_THAT(run(flags).err, HasSubstr("has no tensor 'table'"));
  EXPECT_EQ(run(flags + " --rename=pre=").code, 0);
  for (const char *bad : {"--rename=x", "--rename==", "--rename=a=b=c"})
    EXPECT_EQ(run(flags + " " + bad).code, 2) << bad;
  EXPECT_EQ(run("--steps 1 --rename=a.=").code, 2);
}

// --init takes the arrays of a .npz file, and a folder in Hugging Face's
// layout. A file of torch.save is named with the command that converts it.
TEST_F(Program, InitReadsNpzAndShards) {
  folder.write("make.py", R"(
import io, json, struct, zipfile
def array(count):
    text = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }" % count
    text += " " * (63 - (10 + len(text)) % 64) + "\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text.encode() + struct.pack("<f", 2) * count
sizes = dict(table=10, weight=3, bias=1, scale=1)
for name, method in ("i.npz", zipfile.ZIP_STORED), ("packed.npz", zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(name, "w", method) as file:
        for key, size in sizes.items():
            file.writestr(key + ".npy", array(size))
)");
  ASSERT_EQ(shell("python3 make.py").code, 0);
  Outcome outcome = run("--steps 1 --lr 0 --ranks 3 --init i.npz --save out");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(saved("out", "table"), std::vector<float>(10, 2));
  outcome = run("--steps 1 --init packed.npz");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("in compressed form"));

  auto shard = [&](const char *file,
                   std::vector<std::pair<const char *, int>> tensors) {
    SafeTensorsHeader header;
    uint64_t bytes = 0;
    for (auto &[name, size] : tensors)
      bytes = header.add(name, "f32", {size}, {}) + uint64_t(size) * 4;
    folder.write(file, header.text() + std::string(bytes, '\0'));
  };
  shard("one.safetensors", {{"table", 10}, {"weight", 3}});
  shard("two.safetensors", {{"bias", 1}, {"scale", 1}});
  folder.write("model.safetensors.index.json",
               R"({"weight_map": {"table": "one.safetensors",
 "weight": "one.safetensors", "bias": "two.safetensors",
 "scale": "two.safetensors"}})");
  for (const char *init : {".", "model.safetensors.index.json"})
    EXPECT_EQ(run(std::string("--steps 1 --ranks 2 --init ") + init).code, 0);
  // A small model is one file, without an index.
  shell("mkdir hub");
  outcome = run("--steps 1 --init hub");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err,
              HasSubstr("error: 'hub' is a folder without model."
                        "safetensors or an index of such files; "));
  shard("hub/model.safetensors",
        {{"table", 10}, {"weight", 3}, {"bias", 1}, {"scale", 1}});
  EXPECT_EQ(run("--steps 1 --ranks 2 --init hub").code, 0);
  outcome = run("--steps 1 --init . --log two.safetensors");
  EXPECT_THAT(outcome.err,
              HasSubstr("--init './two.safetensors' are the same file"));
  folder.write("m.pt", "PK\3\4 and so on");
  outcome = run("--steps 1 --init m.pt");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err,
              HasSubstr("'m.pt' is a file of torch.save; write its tensors to "
                        "a safetensors file with 'fsdpc ckpt convert m.pt"));
}

// The model's own files may move (--weights), but not change: their hashes were
// taken by the compiler.
TEST_F(Program, WeightsMoveAndChange) {
  std::string far = "TOY_FOLDER=elsewhere/models";
  Outcome outcome = run("--steps 1 --ranks 2", far);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.errors(), 1);
  EXPECT_THAT(outcome.err, HasSubstr("the weights of 'weight' are missing"));
  EXPECT_THAT(outcome.err, HasSubstr("--weights DIR"));
  EXPECT_EQ(run("--steps 1 --ranks 2 --weights .", far).code, 0);
  // Small tensors are in the model itself, which stays where it was.
  EXPECT_EQ(run("--steps 1 --ranks 2 --weights elsewhere").code, 0);
  folder.write("weights.bin", std::string(20, '\1'));
  for (const char *ranks : {"1", "3"}) {
    outcome = run("--steps 1 --ranks " + std::string(ranks));
    EXPECT_EQ(outcome.code, 1);
    EXPECT_EQ(outcome.errors(), 1) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("/weights.bin' changed "
                                       "since compiling"));
  }
  folder.write("weights.bin", "short");
  EXPECT_THAT(run("--steps 1").err, HasSubstr("changed since compiling"));
  outcome = run("--steps 1", "TOY_TABLE=none");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("parameter 'table' has no initial value"));
}

} // namespace
