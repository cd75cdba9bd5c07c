// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// --log: JSON lines, first a header and then one line per step. Numbers are
// printed with as many digits as they need to read back as the same bits, so
// logs can be compared exactly. Each line is one write, so a killed run leaves
// all completed steps.
#pragma once

#include "runtime/abi/memory_plan.h"
#include "runtime/cli/command_line.h"
#include "runtime/support/status.h"
#include "runtime/train/evaluation.h"
#include "runtime/train/event_file.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// Facts about the run that are known before the first step.
struct RunInfo {
  std::string program;  ///< argv[0]
  std::string launcher; ///< "none", "local", "mpirun", "torchrun", "srun"
  std::string binding;  ///< cores that rank 0 may run on, "0-3,8"
  int ranks = 1, threads = 1, ranksOnNode = 1;
  int groupRanks = 1; ///< of a shard group
  int cores = 1;      ///< cores per rank
  int64_t batch = 0, samples = 0;
  int64_t firstStep = 0;   ///< after 0 if the run resumes
  int64_t processPlan = 0; ///< planned bytes of all ranks of this process
  MemoryPlan plan;
  std::vector<std::string> notes; ///< Device::notes
};

/// The figures of one step, as printed and logged. Byte counts are maxima over
/// the processes of the job.
struct StepRecord {
  int64_t step = 0;
  size_t bucket = 0; ///< of its microbatches, in a program of several shapes
  double loss = 0, gradNorm = 0, lr = 0, milliseconds = 0;
  bool scaled = false; ///< the program scales its loss
  double scale = 1; ///< of this step's loss; `loss` and `gradNorm` are unscaled
  bool counts = false; ///< steps may be skipped
  int64_t skipped = 0; ///< steps up to this one that changed no parameter
  /// Gradients of all ranks and microbatches with elements that were not finite
  /// and became 0. Counted by --reduce-hook=zero-nonfinite.
  double zeroed = 0;
  double exposedMilliseconds = 0; ///< communication that no computation hid
  int64_t residentBytes = 0;      ///< the most of a process so far
  /// Bytes that a rank has sent on the mean, as SentBytes has them. Counted in
  /// jobs of several ranks, unless these are GPUs of one process.
  bool counted = false, countedNodes = false;
  std::array<double, 5> sent = {};
  std::vector<double> metrics; ///< in the order of --metric
  bool measured = false;       ///< the update, for --histogram-every
  int64_t corrupt = 0; ///< samples replaced so far in this run (--skip-corrupt)
  int64_t overPlan = 0; ///< resident memory minus processPlan; may be negative
};

/// Tokens per microbatch of a bucket, or samples if the model takes no tokens.
int64_t itemsPerMicrobatch(const Manifest &manifest, size_t bucket);

/// Tokens or samples that all ranks together train on in a second of this step.
double itemsPerSecond(const Manifest &manifest, const Options &options,
                      const RunInfo &info, const StepRecord &record);

/// The points that a step adds to the curves of --tensorboard, under the keys
/// of the log.
std::vector<Scalar> scalarsOf(const Manifest &manifest, const Options &options,
                              const RunInfo &info, const StepRecord &record);

/// The log file of rank 0. Without `open` the functions do nothing.
class Log {
public:
  Log() = default;
  Log(const Log &) = delete;
  ~Log();
  /// Opens the file, and locks it until the run ends: two runs on one log would
  /// garble it. Leaves what it holds until `goBack` cuts it, since the run may
  /// not come to train. A pipe or device is written as it is.
  Status open(const std::string &path);
  /// Write a line. After a failure the log ends with its last whole line, and
  /// further calls do nothing.
  Status header(const Manifest &manifest, const Options &options,
                const RunInfo &info);
  Status step(const Manifest &manifest, const Options &options,
              const RunInfo &info, const StepRecord &record);
  /// Cuts the lines of this step and of all later ones, which will be logged
  /// again: all of them at step 0, as those of another run.
  Status goBack(int64_t step) { return file < 0 ? Status() : cut(step); }
  /// A line with `eval_step` in place of `step`: the steps done before it.
  Status evaluation(const Options &options, const EvaluationRecord &record);

private:
  Status line(const std::string &text);
  Status cut(int64_t firstStep);
  int file = -1;
  bool isRegular = false;
  uint64_t written = 0; ///< bytes of whole lines
  std::string path;
};

} // namespace fsdpc::runtime
