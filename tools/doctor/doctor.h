// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc doctor`: what this machine has, what it lacks, and the command that
// mends each. The facts are read in one place and judged in another, so that
// the judgement can be tested on machines that do not exist.
#pragma once

#include "tools/completion/completion.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fsdpc::doctor {

/// What was found. Sizes are in bytes; an absent value was not to be read.
struct Facts {
  std::string processor;       ///< its name
  int level = 0;               ///< x86-64 level, 0 if below 3
  int cores = 0;               ///< that this process may run on
  int onlineCores = 0;         ///< of the machine
  std::optional<double> quota; ///< processors, of the control group
  std::optional<uint64_t> memory, availableMemory, memoryLimit;
  std::optional<uint64_t> sharedMemory, freeSharedMemory; ///< of /dev/shm
  std::string temporary; ///< folder of temporary files
  std::optional<uint64_t> freeTemporary;
  std::optional<uint64_t> processes, files; ///< soft limits
  std::vector<std::string> missing;         ///< parts of the installation
  std::string mpirun;                       ///< path, empty if missing
  std::string mpiFault;          ///< why libmpi cannot be loaded, or ""
  std::vector<std::string> gpus; ///< names
  std::string driver;            ///< version of NVIDIA's driver
  std::string cudaRuntime;       ///< the runtime's archive, or ""
  std::string toolkit;           ///< folder, empty if none is complete
  std::string nccl;              ///< version, empty if it cannot be loaded
};

enum class Verdict { fine, optional, wrong };

/// A line of the report.
struct Finding {
  Verdict verdict;
  std::string about, found;
  std::string mend; ///< a command or what else to do, "" if fine
};

/// Reads the facts of this machine. `tool` is the path of fsdpc, and `toolkit`
/// the folder of the CUDA toolkit that it takes.
Facts gather(const std::string &tool, const std::string &toolkit);

/// Judges them. Only what a compile and a run on this machine need can be
/// wrong; mpirun and what a GPU needs are optional.
std::vector<Finding> judge(const Facts &facts);

/// Returns the report.
std::string reportOf(const std::vector<Finding> &findings);

/// Describes the command for `fsdpc completion`.
completion::Command describeDoctor();

/// Reads the command line `doctor …`, of which argv[0] is "doctor", and prints
/// the report. Returns the exit code: 1 if something is wrong.
int runDoctor(int argc, char **argv, const std::string &toolkit);

} // namespace fsdpc::doctor
