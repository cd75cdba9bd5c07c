// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command line of fsdpc. The options of a compile come from one table
// (compiler/options/OptionTable.h); the driver adds a few of its own.
#pragma once

#include "compiler/options/Options.h"
#include "compiler/schedule/cluster.h"
#include "passes/pipeline/Pipeline.h"
#include "tools/completion/completion.h"
#include "tools/fsdpc/Timing.h"

#include <map>
#include <string>
#include <vector>

namespace fsdpc::driver {

/// The tool's commands on a model. All take the flags of a compile.
enum class Command {
  Compile,
  Check,    ///< stops before code generation, and writes no program
  Simulate, ///< estimates steps of the plan
  Tune,     ///< plans the model with many settings
};

/// Further flags of `fsdpc simulate` and `fsdpc tune`.
struct PlanFlags {
  std::vector<int64_t> ranks; ///< empty: as the compile's flags say
  int64_t accumulate = 1;     ///< microbatches of a step
  schedule::Unevenness unevenness;
  std::string json;     ///< the file that gets the figures, or empty
  std::string batchDim; ///< tune: the dimension that microbatches may cut
  int64_t measured = 0; ///< tune: how many of the best are run
};

/// The parsed command line. Paths are as given; an empty one means that its
/// flag is absent.
struct CommandLine {
  std::string model;      ///< an ONNX model, or a dump of a phase
  std::string output;     ///< the program, or the module of --compile-to
  std::string dumpFolder; ///< --dump-ir: gets a file per pass
  pipeline::DumpForm dumpForm = pipeline::DumpForm::Short; ///< --dump-full
  /// Folders beyond its own that a dump may take weights from.
  std::vector<std::string> weightFolders;
  std::string cudaPath; ///< of the toolkit, for --target=cuda
  std::string cache;    ///< of compiled kernels; empty: the user's, or "none"
  /// Files that are written beside the program: figures of GPU kernels, the
  /// schedule as a table that may be edited, and the page of a plan with the
  /// trace of a run that the page compares it with.
  std::string kernelReport;
  std::string scheduleTable;
  std::string profile;
  std::string report;
  std::string reportTrace;
  /// The last phase, from --compile-to.
  pipeline::Phase last = pipeline::Phase::Executable;
  Command command = Command::Compile;
  PlanFlags plan;
  bool quiet = false;
  bool verbose = false;
  TimingDetail timing = TimingDetail::None;
  bool absolutePaths = false; ///< the program keeps the paths of the model
  /// The options of the table, checked one by one but not yet against each
  /// other (fsdp::checkOptions).
  fsdp::CompileOptions options;
  /// The symbolic dimensions for which --dim gives several values. `options`
  /// has the first of each (tools/fsdpc/Buckets.h).
  std::map<std::string, std::vector<std::string>> dims;
  std::string text; ///< the line with names for absolute paths, for --info
};

/// Reads the command line of `commandLine.command`.
/// Returns -1 to continue, or the exit code to stop with: 0 after --help, 2
/// after an error, which is already printed.
int parseCommandLine(int argc, char **argv, CommandLine &commandLine);

/// Describes a command for `fsdpc completion`.
completion::Command describeCommand(Command command);

} // namespace fsdpc::driver
