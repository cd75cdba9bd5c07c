// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A whole program for the emulated GPU (runtime_toy_program.cpp) compared with
// the same program for the host. The bits of losses, norms and saved files are
// equal, because sums in rank order have only one order. And on a machine where
// something is missing or fails, all ranks end with one line.
#include "tests/runtime/data/runtime_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

using nlohmann::json;

namespace {

class CudaProgram : public testing::Test {
protected:
  CudaProgram() { writeToyData(folder); }

  int run(const char *program, const std::string &flags,
          const std::string &environment, const std::string &launcher = "") {
    std::string command =
        "cd " + folder / "" + " && " + environment + " " + launcher + " " +
        program +
        " --data ids=ids.npy --data target=target.npy --log log "
        "--save out.safetensors " +
        flags + " >out 2>err </dev/null";
    int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  // Returns the traces of a run: losses and norms as printed, and the saved
  // bytes.
  std::string trace(const char *program, const std::string &flags,
                    const std::string &environment,
                    const std::string &launcher = "") {
    EXPECT_EQ(run(program, flags, environment, launcher), 0)
        << folder.read("err");
    std::string text;
    std::istringstream lines(folder.read("log"));
    for (std::string line; std::getline(lines, line);)
      if (json step = json::parse(line); step.contains("loss"))
        text += step["loss"].dump() + " " + step["grad_norm"].dump() + "\n";
    return text + folder.read("out.safetensors");
  }

  // Returns the lines that begin with "error:". A run must have one.
  std::string error() {
    std::istringstream lines(folder.read("err"));
    std::string found;
    for (std::string line; std::getline(lines, line);)
      if (line.rfind("error: ", 0) == 0)
        found = (found.empty() ? "" : "several: " + found) + line.substr(7);
    return found;
  }

  TemporaryFolder folder;
};

const char *const mpirun =
    "env OMPI_MCA_orte_tmpdir_base=$PWD OMPI_ALLOW_RUN_AS_ROOT=1 "
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " MPIEXEC " --oversubscribe -np 2";

// A launcher that starts its arguments twice, as torchrun does.
std::string torchrun() {
  static int port = 29000 + getpid() % 1000;
  return "env WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=" +
         std::to_string(port++) +
         " sh -c 'RANK=0 \"$@\" & RANK=1 \"$@\"; code=$?; wait $! || code=$?; "
         "exit $code' -";
}

// One rank with every strategy and every type of parameters and wire, with
// graphs and without.
TEST_F(CudaProgram, hasTheHostsBitsOnOneRank) {
  for (const char *types : {"TOY_TYPE=f32", "TOY_TYPE=bf16 TOY_REDUCE=f16",
                            "TOY_TYPE=bf16 TOY_REDUCE=bf16"})
    for (const char *strategy : {"zero3", "zero1", "ddp", "step"}) {
      std::string environment =
          std::string(types) + " TOY_STRATEGY=" + strategy;
      SCOPED_TRACE(environment);
      std::string flags = "--steps 7 --accumulate 3";
      std::string host = trace(HOST_PROGRAM, flags, environment);
      EXPECT_EQ(trace(EMULATED_PROGRAM, flags, environment), host);
      EXPECT_EQ(trace(EMULATED_PROGRAM, flags + " --no-graph", environment),
                host);
    }
}

// Without accumulation, updates follow the other input slot.
TEST_F(CudaProgram, hasTheHostsBitsWithoutAccumulation) {
  std::string flags = "--steps 9 --shuffle --lr-schedule cosine";
  EXPECT_EQ(trace(EMULATED_PROGRAM, flags, ""), trace(HOST_PROGRAM, flags, ""));
}

// Ranks as threads, which copy between their buffers, with every strategy and
// wire type.
TEST_F(CudaProgram, hasTheHostsBitsOnRanksOfOneProcess) {
  for (const char *types : {"TOY_TYPE=f32", "TOY_TYPE=bf16 TOY_REDUCE=f16",
                            "TOY_TYPE=bf16 TOY_REDUCE=bf16"})
    for (const char *strategy : {"zero3", "zero1", "ddp", "step"}) {
      std::string environment =
          std::string(types) + " TOY_STRATEGY=" + strategy;
      SCOPED_TRACE(environment);
      std::string flags = "--steps 5 --ranks 3 --accumulate 2";
      EXPECT_EQ(trace(EMULATED_PROGRAM, flags, environment),
                trace(HOST_PROGRAM, flags, environment));
    }
}

// A layout that stays f32 in a program of bf16 is gathered and reduced in f32.
TEST_F(CudaProgram, hasTheHostsBitsWithALayoutInF32) {
  const std::string environment = "TOY_TYPE=bf16 TOY_REDUCE=bf16 ",
                    kept = environment + "TOY_TABLE_TYPE=f32";
  for (const char *ranks : {"--ranks 1", "--ranks 3"}) {
    SCOPED_TRACE(ranks);
    std::string flags = std::string("--steps 5 --accumulate 2 ") + ranks;
    std::string host = trace(HOST_PROGRAM, flags, kept);
    EXPECT_NE(host, trace(HOST_PROGRAM, flags, environment));
    EXPECT_EQ(trace(EMULATED_PROGRAM, flags, kept), host);
  }
}

// Ranks as processes on an emulated NCCL: the same bits if sums are in rank
// order, with graphs and without.
TEST_F(CudaProgram, hasTheHostsBitsOnRanksOfMpi) {
  for (const char *types : {"TOY_TYPE=f32", "TOY_TYPE=bf16 TOY_REDUCE=f16",
                            "TOY_TYPE=bf16 TOY_REDUCE=bf16"})
    for (const char *strategy : {"zero3", "ddp", "step"}) {
      std::string environment =
          std::string(types) + " TOY_STRATEGY=" + strategy;
      SCOPED_TRACE(environment);
      std::string flags = "--steps 7 --accumulate 2";
      std::string host = trace(HOST_PROGRAM, flags + " --ranks 2", environment);
      flags += " --deterministic";
      EXPECT_EQ(trace(EMULATED_PROGRAM, flags, environment, mpirun), host);
      EXPECT_EQ(
          trace(EMULATED_PROGRAM, flags + " --no-graph", environment, mpirun),
          host);
    }
}

// The first problem of the machine is named in one line.
TEST_F(CudaProgram, saysWhatIsMissing) {
  struct Case {
    const char *environment, *message;
  };
  const Case cases[] = {
      {"FSDPC_EMULATION_FAULT=driver", "CUDA driver version"},
      {"FSDPC_EMULATION_MEMORY=100000", "the program requires "},
      {"FSDPC_EMULATION_FAULT=memory", "the program requires "}};
  for (const Case &c : cases) {
    EXPECT_EQ(run(EMULATED_PROGRAM, "--steps 2", c.environment), 3);
    EXPECT_THAT(error(), testing::StartsWith(c.message));
  }
}

// The memory that graphs, kernels and NCCL take later must be free at the
// start.
TEST_F(CudaProgram, keepsAReserveOfMemory) {
  EXPECT_EQ(run(EMULATED_PROGRAM, "--steps 2", "FSDPC_EMULATION_MEMORY=9"), 3);
  long long program = 0, reserve = 0;
  ASSERT_EQ(sscanf(error().c_str(),
                   "the program requires %lld bytes of GPU memory and a "
                   "reserve of %lld for graphs, kernels, but 9 of 9 are free",
                   &program, &reserve),
            2)
      << error();
  auto memory = [](long long bytes) {
    return "FSDPC_EMULATION_MEMORY=" + std::to_string(bytes);
  };
  EXPECT_EQ(run(EMULATED_PROGRAM, "--steps 2", memory(program + reserve - 1)),
            3);
  EXPECT_EQ(run(EMULATED_PROGRAM, "--steps 2", memory(program + reserve)), 0);
}

#ifdef CUDA_PROGRAM
// The program for a real GPU, started without one, alone or as several ranks,
// ends with one line.
TEST_F(CudaProgram, saysThatThereIsNoGpu) {
  for (const char *flags : {"--steps 2", "--steps 2 --ranks 2"}) {
    int code = run(CUDA_PROGRAM, flags, "TOY_FOLDER=" + folder / "");
    if (code == 0)
      GTEST_SKIP() << "this machine has a GPU";
    EXPECT_EQ(code, 3);
    EXPECT_THAT(error(),
                testing::ContainsRegex("^(no NVIDIA driver "
                                       "found|the NVIDIA driver|no GPU)"));
  }
}
#endif

// Offloading to pinned memory changes no bit, with graphs and without,
// on ranks of one process and of several.
TEST_F(CudaProgram, hasTheHostsBitsWithPinnedShards) {
  for (const char *offload :
       {"optimizer", "parameters", "optimizer,parameters,gradients"})
    for (const char *types : {"TOY_TYPE=f32", "TOY_TYPE=bf16"}) {
      std::string environment = std::string(types) + " TOY_OFFLOAD=" + offload;
      SCOPED_TRACE(environment);
      std::string flags = "--steps 5 --accumulate 2";
      std::string alone = trace(HOST_PROGRAM, flags, types);
      EXPECT_EQ(trace(EMULATED_PROGRAM, flags, environment), alone);
      EXPECT_EQ(trace(EMULATED_PROGRAM, flags + " --no-graph", environment),
                alone);
      flags += " --ranks 2";
      std::string two = trace(HOST_PROGRAM, flags, types);
      EXPECT_EQ(trace(EMULATED_PROGRAM, flags, environment), two);
      EXPECT_EQ(trace(EMULATED_PROGRAM,
                      "--steps 5 --accumulate 2 --deterministic", environment,
                      mpirun),
                two);
    }
}

// The device needs as much less as the plan says, and the host must be able to
// pin what is offloaded.
TEST_F(CudaProgram, plansWhatIsPinned) {
  auto planOf = [&](const std::string &environment) {
    EXPECT_EQ(run(EMULATED_PROGRAM, "--steps 1", environment), 0);
    return json::parse(
        folder.read("log").substr(0, folder.read("log").find('\n')))["plan"];
  };
  auto required = [&](const std::string &environment) {
    EXPECT_EQ(run(EMULATED_PROGRAM, "--steps 1",
                  environment + " FSDPC_EMULATION_MEMORY=9"),
              3);
    long long bytes = 0;
    EXPECT_EQ(sscanf(error().c_str(), "the program requires %lld", &bytes), 1);
    return bytes;
  };
  const std::string offload = "TOY_OFFLOAD=optimizer";
  json whole = planOf(""), plan = planOf(offload);
  // Shards of 32 and 64 elements, one state each.
  EXPECT_EQ(plan["pinned"], (32 + 64) * 4);
  EXPECT_EQ(plan["offload pieces"], 2 * 64 * 4);
  EXPECT_EQ(plan["optimizer"], 0);
  EXPECT_FALSE(plan.contains("on disk"));
  // In the one allocation are also tables of pieces.
  long long tables = (whole["scratchpads"].get<long long>() -
                      plan["scratchpads"].get<long long>());
  EXPECT_EQ(required("") - required(offload),
            (32 + 64) * 4 - 2 * 64 * 4 + tables);
  EXPECT_EQ(run(EMULATED_PROGRAM, "--steps 1",
                offload + " FSDPC_EMULATION_PINNED=4194304"),
            3);
  EXPECT_THAT(error(), testing::MatchesRegex(
                           "cannot pin [0-9]+ bytes of host memory, 384 of "
                           "them for what is offloaded: .* are free.*; use "
                           "more ranks, or offload less"));
  EXPECT_EQ(run(EMULATED_PROGRAM, "--steps 1 --offload-dir .", offload), 2);
  EXPECT_THAT(error(), testing::HasSubstr("in pinned memory; omit the flag"));
}

// A checkpoint does not tell where the states were.
TEST_F(CudaProgram, resumesWithPinnedShards) {
  const std::string all = "TOY_OFFLOAD=optimizer,parameters,gradients";
  std::string expected = trace(EMULATED_PROGRAM, "--steps 6", "");
  for (const std::string &first : {all, std::string()}) {
    std::filesystem::remove_all(folder / "c");
    EXPECT_EQ(run(EMULATED_PROGRAM,
                  "--steps 3 --checkpoint c --checkpoint-every 1", first),
              0);
    std::string flags = "--steps 6 --checkpoint c --resume";
    EXPECT_EQ(trace(EMULATED_PROGRAM, flags, first.empty() ? all : ""),
              expected);
  }
}

// Ranks of torchrun, which meet over TCP and use an emulated NCCL.
TEST_F(CudaProgram, hasTheHostsBitsOnRanksOfTorchrun) {
  std::string flags = "--steps 5 --accumulate 2";
  std::string host = trace(HOST_PROGRAM, flags + " --ranks 2", "");
  EXPECT_EQ(trace(EMULATED_PROGRAM, flags + " --deterministic", "", torchrun()),
            host);
}

// Every way of starting two ranks, on a machine where something goes wrong.
TEST_F(CudaProgram, endsEveryRankOfAFaultWithOneLine) {
  struct Case {
    const char *environment, *watchdog, *message;
    int code = 3;
  };
  const Case cases[] = {
      {"FSDPC_EMULATION_FAULT=few-devices", "60",
       "' has 1 GPU for 2 ranks; start fewer ranks on this node, or start one "
       "process with "
       "--ranks 2",
       1},
      {"FSDPC_EMULATION_FAULT=silent:9@1", "1",
       ": all_gather has not ended within 1 s", 5},
      {"FSDPC_EMULATION_FAULT=nccl:9@1", "60",
       "rank 1, step 1, unit 'toy': all_gather failed: ", 5},
      {"FSDPC_EMULATION_FAULT=launch:300@1", "60", "CUDA_LAUNCH_BLOCKING=1"},
      {"FSDPC_EMULATION_FAULT=memory", "60", "the program requires "}};
  for (const Case &c : cases)
    for (const std::string &launcher : {std::string(mpirun), torchrun()}) {
      SCOPED_TRACE(c.environment + (" " + launcher));
      EXPECT_EQ(run(EMULATED_PROGRAM,
                    std::string("--steps 50 --watchdog ") + c.watchdog,
                    c.environment, launcher),
                c.code);
      EXPECT_THAT(error(), testing::HasSubstr(c.message));
      EXPECT_THAT(error(), testing::Not(testing::StartsWith("several")));
    }
}

// The message of a failing kernel names its unit and step.
TEST_F(CudaProgram, namesTheStepOfAFailingLaunch) {
  EXPECT_EQ(
      run(EMULATED_PROGRAM, "--steps 9", "FSDPC_EMULATION_FAULT=launch:6"), 3);
  EXPECT_THAT(error(), testing::StartsWith("rank 0, step "));
}

// The calls of a graph have no place on the host. A fault in a replay is not
// blamed on the call that was captured last.
TEST_F(CudaProgram, saysThatAGraphReplayFailed) {
  EXPECT_EQ(
      run(EMULATED_PROGRAM, "--steps 60", "FSDPC_EMULATION_FAULT=launch:200"),
      3);
  EXPECT_THAT(error(), testing::ContainsRegex(
                           "^rank 0, step [0-9]+: graph replay "
                           "\\(asynchronous\\) failed: .*--no-graph and "
                           "CUDA_LAUNCH_BLOCKING=1"));
}

// A kernel that never ends, on a single rank, which has no collective that a
// watchdog could see.
TEST_F(CudaProgram, endsALoneRankWhoseKernelHangs) {
  for (const char *flags : {"", " --no-graph"}) {
    EXPECT_EQ(run(EMULATED_PROGRAM,
                  std::string("--steps 60 --watchdog 1") + flags,
                  "FSDPC_EMULATION_FAULT=hang:200"),
              5);
    EXPECT_THAT(error(), testing::ContainsRegex(
                             "^rank 0, step [0-9]+: the GPU has made no "
                             "progress for 1 s; a kernel hangs, or is slower "
                             "than --watchdog allows"));
  }
}

// The first step loads code, so its limit is a flag of its own. The host may be
// a step ahead of the GPU.
TEST_F(CudaProgram, endsAFirstStepThatHangs) {
  EXPECT_EQ(run(EMULATED_PROGRAM,
                "--steps 60 --watchdog 60 --first-step-timeout 1",
                "FSDPC_EMULATION_FAULT=hang:3"),
            5);
  EXPECT_THAT(error(),
              testing::ContainsRegex(
                  "^rank 0, step [01]: the GPU has made no progress for "
                  "1 s; a kernel hangs, or is slower than "
                  "--first-step-timeout allows"));
}

// A single rank can use NCCL, so that one GPU tests it: joining, registration,
// captured collectives, the end.
TEST_F(CudaProgram, usesNcclAlone) {
  std::string flags = "--steps 7 --accumulate 3";
  std::string environment = "FSDPC_EMULATION_VOLUMES=volumes ";
  std::string host = trace(HOST_PROGRAM, flags, "");
  EXPECT_EQ(trace(EMULATED_PROGRAM, flags, environment), host);
  EXPECT_EQ(folder.read("volumes"), "");
  environment += "FSDPC_NCCL_ALONE=1";
  EXPECT_EQ(trace(EMULATED_PROGRAM, flags, environment), host);
  EXPECT_THAT(folder.read("volumes"), testing::StartsWith("0 "));
  EXPECT_EQ(trace(EMULATED_PROGRAM, flags + " --deterministic", environment),
            host);
}

// The second step's samples are read before any results are. The device runs
// ahead then, but a bad one ends the run all the same.
TEST_F(CudaProgram, namesABadSampleOfTheSecondStep) {
  std::string ids = folder.read("ids.npy");
  int32_t bad = 77;
  std::memcpy(&ids[128 + 2 * 12], &bad, 4); // samples 2 and 3 are step 1's
  folder.write("ids.npy", ids);
  for (const char *program : {HOST_PROGRAM, EMULATED_PROGRAM}) {
    EXPECT_EQ(run(program, "--steps 3", ""), 1);
    EXPECT_THAT(error(), testing::HasSubstr("sample 2 element 0: 77"));
  }
}

// A gradient that is not finite is noticed one step late and reported as on the
// host.
TEST_F(CudaProgram, stopsAtAGradientThatIsNotFinite) {
  for (const char *program : {HOST_PROGRAM, EMULATED_PROGRAM}) {
    EXPECT_EQ(run(program, "--steps 40 --lr 1e30", ""), 3);
    EXPECT_THAT(error(), testing::HasSubstr("finite"));
  }
}

} // namespace
