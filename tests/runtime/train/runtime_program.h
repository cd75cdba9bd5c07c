// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the toy program (runtime_toy_program.cpp) as a user does: through its
// command line, judged by exit codes, stderr, the log and the saved files.
#pragma once

#include "runtime/data/safetensors.h"
#include "tests/runtime/data/runtime_files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool sanitized = true; ///< sanitizers enlarge a process
#else
inline constexpr bool sanitized = false;
#endif

/// A command that succeeds if a folder of checkpoints holds anything else.
inline std::string leftovers(const std::string &checkpoints) {
  return "ls -A " + checkpoints + " | grep '^[.]' | grep -vx '[.]lock'";
}

struct Outcome {
  int code;
  std::string out, err;
  int errors() const { // number of lines that begin with "error:"
    std::istringstream lines(err);
    std::string line;
    int count = 0;
    while (std::getline(lines, line))
      count += line.rfind("error:", 0) == 0;
    return count;
  }
};

/// Each test has a folder of its own, with the toy's data.
class Program : public testing::Test {
protected:
  Program() { writeToyData(folder); }

  /// Runs a shell command in the test's folder. Returns what all its parts
  /// print.
  Outcome shell(const std::string &command) {
    int status = std::system(
        ("cd " + folder / "" + " && { " + command + "\n} >out 2>err </dev/null")
            .c_str());
    Outcome outcome{WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                    folder.read("out"), folder.read("err")};
    return outcome;
  }
  /// `environment` is a list of NAME=VALUE before the command.
  Outcome run(const std::string &flags, const std::string &environment = "") {
    return shell(environment +
                 " " TOY_PROGRAM
                 " --data ids=ids.npy --data target=target.npy " +
                 flags);
  }
  Outcome mpi(int ranks, const std::string &flags,
              const std::string &environment = "") {
    // MPI keeps some memory until the process ends. An mpirun that ends removes
    // the folder that all of a user's share, while another may be making its
    // own in it.
    return shell(
        environment +
        " ASAN_OPTIONS=detect_leaks=0 OMPI_MCA_orte_tmpdir_base=$PWD "
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 " MPIEXEC
        " --oversubscribe -np " +
        std::to_string(ranks) +
        " " TOY_PROGRAM " --data ids=ids.npy --data target=target.npy " +
        flags);
  }
  /// Starts ranks as torchrun does: processes that know their rank and a port.
  /// If there are several environments, rank r gets the r-th.
  Outcome torchrun(int ranks, const std::string &flags,
                   const std::vector<std::string> &environments = {}) {
    static int port = 21000 + getpid() % 8000;
    std::string script = "pids=", world = std::to_string(ranks);
    ++port;
    for (int rank = 0; rank < ranks; ++rank)
      script += "; env RANK=" + std::to_string(rank) + " WORLD_SIZE=" + world +
                " MASTER_ADDR=localhost MASTER_PORT=" + std::to_string(port) +
                " " + (environments.empty() ? "" : environments[size_t(rank)]) +
                " " TOY_PROGRAM
                " --data ids=ids.npy --data target=target.npy " +
                flags + " & pids=\"$pids $!\"";
    return shell("( " + script +
                 "; code=0; for pid in $pids; do wait $pid || code=$?; done; "
                 "exit $code )");
  }

  /// Returns the losses and norms of a run as printed, and the saved bytes.
  std::string trace(const Outcome &outcome) {
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::string text;
    for (const nlohmann::json &line : log())
      if (line.contains("loss"))
        text += line["loss"].dump() + " " + line["grad_norm"].dump() + "\n";
    return text + folder.read("out.safetensors");
  }
  std::vector<nlohmann::json> log() {
    std::istringstream lines(folder.read("log"));
    std::string line;
    std::vector<nlohmann::json> parsed;
    while (std::getline(lines, line))
      parsed.push_back(nlohmann::json::parse(line));
    return parsed;
  }
  std::vector<float> saved(const std::string &file, const std::string &name) {
    auto tensors = fsdpc::runtime::SafeTensors::open(folder / file);
    EXPECT_TRUE(tensors);
    const fsdpc::runtime::SafeTensor *tensor =
        tensors ? tensors->find(name, {}) : nullptr;
    if (!tensor)
      return {};
    std::vector<float> values(tensor->bytes / 4);
    EXPECT_TRUE(
        tensors->file().read(tensor->offset, values.data(), tensor->bytes));
    return values;
  }

  /// Overwrites the target of one sample.
  void setTarget(size_t sample, float value) {
    std::string target = folder.read("target.npy");
    std::memcpy(&target[128 + sample * 4], &value, 4);
    folder.write("target.npy", target);
  }

  const std::string outputs = " --log log --save out.safetensors";
  TemporaryFolder folder;
};
