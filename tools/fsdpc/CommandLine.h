// The command line of fsdpc. The options of a compile come from one table
// (compiler/dialects/fsdp/OptionTable.h); the driver adds a few of its own.
#pragma once

#include "compiler/dialects/fsdp/Options.h"
#include "compiler/pipeline/Pipeline.h"

#include <string>

namespace fsdpc::driver {

// The parsed command line. Paths are as given; an empty one means that its
// flag is absent.
struct CommandLine {
  std::string model;
  std::string output;
  std::string dumpFolder;
  std::string cudaPath;
  std::string kernelReport;
  std::string scheduleTable;
  // The last phase, from --compile-to.
  pipeline::Phase last = pipeline::Phase::Executable;
  // `fsdpc check`: stops before code generation, and writes no file.
  bool isCheck = false;
  // Hides everything but errors and warnings.
  bool quiet = false;
  bool timing = false;
  // The options of the table, checked one by one but not yet against each other
  // (fsdp::checkOptions).
  fsdp::CompileOptions options;
  std::string text; // the whole line, for --info
};

// Reads the command line, of `fsdpc check` if `commandLine.isCheck` is set.
// Returns -1 to continue, or the exit code to stop with: 0 after --help, 2
// after an error, which is already printed.
int parseCommandLine(int argc, char **argv, CommandLine &commandLine);

} // namespace fsdpc::driver
