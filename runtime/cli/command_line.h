// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command line of a compiled program: data sources, steps, learning rate,
// ranks, and what to write. The manifest decides which inputs --data and
// --tokens may name.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/cli/device_options.h"
#include "runtime/cli/lr_schedule.h"
#include "runtime/cli/output_flags.h"
#include "runtime/support/renaming.h"
#include "runtime/support/status.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// One --data or --tokens.
struct DataSource {
  std::string input, file; ///< the input's name in the manifest, and a path
  bool tokens = false;     ///< a stream of tokens, and not an array of samples
  std::string width;       ///< tokens: "u8", …; empty for a .npy file
  /// Tokens by which each sample begins later in the stream than its place
  /// says: 1 for the targets of a language model.
  int64_t shift = 0;
};

/// The reactions to a step whose loss or gradient is not finite: to end the
/// run, to leave the step out, or to go back to the newest checkpoint and go on
/// with the samples after the step.
struct NonFinitePolicy {
  enum Kind { stop, skip, rollback } kind = stop;
  int64_t times = 10; ///< how often before the run ends after all
};

/// A parsed command line. Empty strings and zeroes mean that an option was not
/// given, unless a comment says otherwise.
struct Options {
  // ---- what is trained, on which samples and how ----
  std::string program;          ///< argv[0]
  std::vector<DataSource> data; ///< one per input, in the manifest's order
  std::vector<DataSource> eval; ///< the same of --eval; empty: no evaluation
  /// Steps count from the start of training, so a resumed run does the rest of
  /// them. Each takes `accumulate` microbatches per rank.
  int64_t steps = 0, accumulate = 1;
  int threads = 0; ///< 0: the cores that the rank may use
  /// The rate at factor 1 of the schedule; the manifest's if none was given.
  double lr = 0;
  LrSchedule schedule;
  std::string scheduleText =
      "constant"; ///< --lr-schedule as given, for the log
  /// Decides dropout, shuffling and initial values by rule. Ranks must agree.
  uint64_t seed = 0;
  bool shuffle = false;
  /// Paths. Only rank 0 reads or writes most of them, and checks before the
  /// first step that it can write those of results.
  std::string weights, init, log, trace, save, saveEma, saveGradients;
  bool saveTrained = false;   ///< without the frozen parameters
  Renaming saveRename;        ///< of --save, --save-ema and --best
  std::string rename;         ///< --rename: FROM=TO, prefixes of names
  std::string tensorboard;    ///< a folder
  int64_t histogramEvery = 0; ///< steps between histograms; 0: none
  std::string mixText;        ///< --mix as given
  std::vector<double> mix; ///< weights of the parts of each --data or --tokens
  int64_t splitAt = -1;    ///< --split-at; -1: not given
  bool skipCorrupt = false;
  // ---- checkpoints and failures ----
  std::string offloadDir;      ///< a folder; empty: the default
  std::string checkpoint;      ///< --checkpoint: a folder
  std::string checkpointEvery; ///< as given; one of the next two, or neither
  int64_t checkpointSteps = 0;
  int64_t checkpointMinutes = 0;
  bool checkpointTrained = false; ///< without the frozen parameters
  /// Returns true if checkpoints are also written before the last step.
  bool writesAlongTheWay() const {
    return checkpointSteps > 0 || checkpointMinutes > 0;
  }
  NonFinitePolicy onNonFinite;
  double watchdog = -1; ///< seconds; negative: by the length of steps; 0: never
  /// Limits in seconds of the first step, which loads code and data (0: none),
  /// and of the time in which ranks meet (0: the transport's default).
  double firstStepTimeout = 1800, joinTimeout = 0;
  std::string interface; ///< of the network; empty: not chosen
  /// The file of each rank's last commands if a step does not end. With
  /// several ranks, the rank's number goes before the suffix.
  std::string flightRecorder = "flight-recorder.json";
  std::string timeLimit; ///< as given
  double timeLimitSeconds = 0;
  int64_t keep = 0;            ///< checkpoints that stay
  int64_t keepEvery = 0;       ///< those of multiples of so many steps stay too
  std::string afterCheckpoint; ///< a command of the shell
  // ---- evaluation ----
  int64_t evalEvery = 0; ///< steps between evaluations; 0: one at the end
  int64_t evalSteps = 0; ///< microbatches of an evaluation; 0: all samples
  /// Outputs that the log has beside the loss, and those that are written to
  /// files per sample (output_flags.h).
  std::vector<Metric> metrics;
  std::vector<Prediction> predictions;
  std::string best;     ///< --best: a folder
  int64_t patience = 0; ///< evaluations without a better one; 0: no end
  std::string resume;   ///< "newest" or the digits of a step
  // ---- ranks and the device ----
  int ranks = 0; ///< --ranks; 0: not given
  int ranksPerNode = 0;
  int shardGroup = 0; ///< ranks; 0: as compiled, or those of a node
  std::string reduceOrder = "ranks"; ///< --reduce-order: or "fast"
  DeviceOptions device; ///< `threads` and `accumulate` are filled in later
  bool info = false, manifest = false;
  std::string help; ///< if not empty: print this and exit
};

/// Parses a command line. The error names the valid flag or value nearest to
/// what was given. Checks what one rank can see alone: the forms and ranges of
/// values, and flags that exclude or need each other. It opens no file, so a
/// path that does not exist is found later. The manifest gives the names of
/// inputs and outputs, and refuses flags for what the program does not have.
Result<Options> parseCommandLine(int argc, const char *const *argv,
                                 const Manifest &manifest);

/// Parses "FILE[:WIDTH][+SHIFT]" from the right, since the name of a file may
/// contain both signs. A part that does not have its form belongs to the name,
/// so every text is legal.
void parseTokens(const std::string &text, DataSource &source);

} // namespace fsdpc::runtime
