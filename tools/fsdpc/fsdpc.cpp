// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fsdpc compiles an ONNX training graph, or a dump of an earlier compile, to
// one program. It ends with the codes of runtime/support/exit_code.h.
// Everything that can be checked without compiling (the output's folder, the
// toolkit, contradictory flags) is checked first, since a compile takes long.
#include "compiler/analysis/RankMemory.h"
#include "compiler/codegen/Executable.h"
#include "compiler/codegen/ManifestBuilder.h"
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "passes/pipeline/Dump.h"
#include "passes/pipeline/LinkBuckets.h"
#include "passes/pipeline/Pipeline.h"
#include "passes/pipeline/Registration.h"
#include "runtime/support/diagnostics.h"
#include "runtime/support/signals.h"
#include "runtime/support/spelling.h"
#include "runtime/support/threads.h"
#include "tools/calibrate/command.h"
#include "tools/ckpt/commands.h"
#include "tools/completion/completion.h"
#include "tools/doctor/doctor.h"
#include "tools/export/Export.h"
#include "tools/fsdpc/Buckets.h"
#include "tools/fsdpc/CommandLine.h"
#include "tools/fsdpc/Commands.h"
#include "tools/fsdpc/Diagnostics.h"
#include "tools/fsdpc/Load.h"
#include "tools/fsdpc/Summary.h"
#include "tools/fsdpc/TextStreams.h"
#include "tools/fsdpc/Timing.h"
#include "tools/plan/Diff.h"
#include "tools/plan/Report.h"
#include "tools/plan/Simulate.h"
#include "tools/plan/Tune.h"
#include "tools/run/run.h"
#include "tools/top/top.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

#include <array>
#include <csignal>
#include <iostream>
#include <unistd.h>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::driver;
using namespace fsdpc::codegen;
using namespace fsdpc::pipeline;
using fsdpc::fsdp::CompileOptions;

namespace {

// Returns failure after an error if what was printed has not arrived, as on a
// full disk. LLVM would end the process by a signal otherwise. A reader that
// wanted no more is no error: only what writes files outlives it.
LogicalResult flushOutput() {
  llvm::outs().flush();
  std::error_code error = llvm::outs().error();
  llvm::outs().clear_error();
  if (!error || error == std::errc::broken_pipe)
    return success();
  return usageError("cannot write to stdout: " + error.message());
}

// Writes a dump to `path`, or prints to stdout for "-".
LogicalResult writeModule(ModuleOp module, StringRef path) {
  if (!path.empty() && path != "-")
    return writeDump(module, path, DumpForm::Full);
  module.print(llvm::outs(), OpPrintingFlags().enableDebugInfo(true, false));
  llvm::outs() << '\n';
  return flushOutput();
}

// Refuses a program whose planned peak exceeds --memory-limit. The compiler has
// planned for the limit, but the stacks of kernels are known only when they are
// compiled.
LogicalResult checkPeak(const Manifest &manifest) {
  int64_t peak = plannedPeak(manifest, manifest.planRanks);
  if (manifest.memoryLimit == 0 || peak <= manifest.memoryLimit)
    return success();
  return usageError("planned peak of " + Twine(peak) +
                    " bytes per rank exceeds --memory-limit of " +
                    Twine(manifest.memoryLimit) +
                    " bytes; increase --memory-limit or --plan-ranks");
}

void printModel(const CommandLine &line, ModuleOp module) {
  printModelSummary(module);
  if (line.verbose)
    printDetails(module);
}

// Prints the figures by number of ranks. There is no manifest before the phase
// `memory`.
void printTables(const CommandLine &line, ModuleOp module,
                 const Manifest *manifest) {
  if (!line.verbose)
    return printTotals(module, manifest);
  printPrediction(module);
  if (manifest)
    printMemoryTable(*manifest);
}

// Prints what a compile would print, of a module whose kernels are not
// compiled.
LogicalResult reportCheck(const CommandLine &line, ModuleOp module) {
  printModelSummary(module);
  printDetails(module);
  printUnits(module);
  // Tables and manifest are those of a program without code.
  ProgramTables tables(module);
  Manifest manifest = buildManifest(module, tables);
  manifest.cpu = nameOf(CompileOptions::of(module).cpu);
  printMemoryTable(manifest);
  if (failed(checkPeak(manifest)))
    return failure();
  textOut() << "'" << line.model << "' compiles\n";
  return success();
}

// Writes the report of a compile, for --plan-ranks.
LogicalResult reportPlan(const CommandLine &line, ModuleOp module) {
  FailureOr<plan::Plan> found = plan::Plan::of(module);
  if (failed(found))
    return failure();
  plan::Estimate estimate = found->estimate(found->manifest.planRanks);
  return plan::writeReport(*found, estimate, line.model, line.report,
                           line.reportTrace);
}

// Plans the model with many settings. It is imported again only for other
// shapes.
int tuneModel(const CommandLine &line, OwningOpRef<ModuleOp> module,
              MLIRContext *context) {
  plan::Importer importAgain = [&](const CompileOptions &options) {
    return importModel(line.model, options, context);
  };
  return failed(plan::tune(line, std::move(module), importAgain)) ? kInputFault
                                                                  : 0;
}

// Runs the phases on the module of each bucket by itself, and leaves one module
// in `modules`.
LogicalResult runBuckets(const CommandLine &line, PipelineOptions options,
                         std::vector<OwningOpRef<ModuleOp>> &modules) {
  std::vector<std::string> names;
  for (auto [bucket, module] : llvm::enumerate(modules)) {
    options.dumpFolder = dumpFolderOf(line, bucket);
    BucketErrors named(module->getContext(), line, bucket);
    if (failed(runPipeline(*module, options)))
      return failure();
    names.push_back(nameOfBucket(line, bucket));
  }
  if (modules.size() == 1)
    return success();
  if (failed(linkBuckets(modules, names)))
    return failure();
  modules.resize(1);
  return success();
}

// Returns true if the line asks for a file, and not only for a module or tables
// on stdout.
bool writesFiles(const CommandLine &line) {
  bool prints =
      line.last != Phase::Executable || line.command != Command::Compile;
  return !prints || !outputsOf(line).empty() || !line.dumpFolder.empty();
}

// Nobody misses a cache that nobody has asked for.
std::optional<KernelCache> openCache(const CommandLine &line) {
  if (line.cache == "none")
    return std::nullopt;
  std::string fault;
  std::optional<KernelCache> cache = KernelCache::open(line.cache, fault);
  if (!cache && !line.cache.empty())
    runtime::printWarning("compiled kernels are not kept: " + fault);
  return cache;
}

// The steps of a compile. Returns the exit code.
int compile(const CommandLine &line) {
  if (writesFiles(line))
    runtime::outliveReaders();
  // Ends last, so that freeing the module counts too.
  Timing timing(line.timing);
  timing.begin("import");
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry);
  context.printOpOnDiagnostic(false); // a module is long
  DiagnosticPrinter diagnostics(&context, line.quiet);

  int code = 0;
  ExecutableOptions executable;
  std::vector<OwningOpRef<ModuleOp>> modules =
      load(line, &context, executable, code);
  if (modules.empty())
    return code;
  OwningOpRef<ModuleOp> &module = modules.front();
  if (line.command == Command::Tune) {
    timing.begin("tune");
    return tuneModel(line, std::move(module), &context);
  }
  PipelineOptions options;
  options.last = line.last;
  if (!line.report.empty() && line.command == Command::Compile)
    options.planned = [&] { return reportPlan(line, *module); };
  options.scheduleTable = line.scheduleTable;
  options.profile = line.profile;
  options.dumpForm = line.dumpForm;
  Progress progress(line.quiet, pipelineSteps().size() * modules.size());
  options.progress = [&](const PipelineStep &step) {
    progress.step(step.name);
    timing.begin(phaseName(step.phase), step.name);
  };
  // The diagnostics have been printed by their handler.
  if (failed(runBuckets(line, options, modules)))
    return kInputFault;
  Progress::clear();
  timing.begin(line.command != Command::Compile ? "report"
               : line.last == Phase::Executable ? "program"
                                                : "write");
  if (line.command == Command::Check)
    return failed(reportCheck(line, *module)) ? kInputFault : 0;
  if (line.command == Command::Simulate)
    return failed(plan::simulate(*module, line)) ? kInputFault : 0;
  if (line.last != Phase::Executable) {
    // The module may go to stdout.
    bool toFile = !line.output.empty() && line.output != "-";
    if (!line.quiet && toFile && line.last >= Phase::Schedule) {
      printModel(line, *module);
      if (line.last == Phase::Memory) {
        Manifest manifest = analysis::describeRank(*module);
        printTables(line, *module, &manifest);
      } else {
        printTables(line, *module, nullptr);
      }
    }
    LogicalResult written = writeModule(*module, line.output);
    timing.begin("end");
    return failed(written) ? kInputFault : 0;
  }

  if (!line.quiet)
    printModel(line, *module);
  // Called when the program is linked and not yet written, since the stacks of
  // kernels are part of the peak.
  executable.accept = [&](const Manifest &manifest) {
    if (!line.quiet)
      printTables(line, *module, &manifest);
    return checkPeak(manifest);
  };
  executable.kernels.begin = [&](StringRef part) { timing.begin(part); };
  std::optional<KernelCache> cache = openCache(line);
  executable.kernels.cache = cache ? &*cache : nullptr;
  bool built = succeeded(buildExecutable(*module, executable));
  timing.begin("end");
  return built ? 0 : kInputFault;
}

// Returns the CUDA toolkit that a compile would take, or "" if there is none.
std::string folderOfToolkit() {
  MLIRContext context;
  ScopedDiagnosticHandler quiet(&context, [](Diagnostic &) {});
  FailureOr<CudaToolkit> found =
      findCudaToolkit(UnknownLoc::get(&context), /*folder=*/"");
  return failed(found) ? "" : found->root;
}

// Returns a command's exit code, which says success up to `last`. Success
// includes that everything printed has arrived.
int printed(int code, int last = 0) {
  return code <= last && failed(flushOutput()) ? int(ExitCode::runFailed)
                                               : code;
}

// Returns the exit code.
int runTool(int argc, char **argv) {
  // A model that is called as a subcommand is written './ckpt'.
  StringRef command = argc > 1 ? argv[1] : "";
  if (command == "ckpt")
    return ckpt::runCkpt(argc - 1, argv + 1);
  if (command == "calibrate")
    return calibrate::runCalibrate(argc - 1, argv + 1);
  if (command == "run")
    return run::runCommand(argc - 1, argv + 1);
  if (command == "top")
    return top::runTop(argc - 1, argv + 1);
  if (command == "completion")
    return completion::runCompletion(argc - 1, argv + 1, allCommands());
  if (command == "doctor")
    return doctor::runDoctor(argc - 1, argv + 1, folderOfToolkit());
  if (command == "diff")
    return printed(plan::runDiff(argc - 1, argv + 1), /*last=*/1);
  if (command == "export") {
    exporting::Arguments arguments;
    int code = exporting::parseArguments(argc - 1, argv + 1, arguments);
    return code >= 0 ? code : exporting::run(arguments);
  }
  CommandLine line;
  line.command = llvm::StringSwitch<Command>(command)
                     .Case("check", Command::Check)
                     .Case("simulate", Command::Simulate)
                     .Case("tune", Command::Tune)
                     .Default(Command::Compile);
  // The subcommand takes the place of the program.
  int skipped = line.command != Command::Compile;
  if (int code = parseCommandLine(argc - skipped, argv + skipped, line);
      code >= 0)
    return code;
  return printed(compile(line));
}

// LLVM ends the process by a signal when it is out of threads or memory. These
// are errors like any other, and what the compile has made so far goes.
void endByError(void *, const char *reason, bool) {
  bool isThread = StringRef(reason).contains("pthread_create");
  std::string limits = isThread ? threadLimits() : "";
  std::string text = limits.empty() ? reason : reason + ("; " + limits);
  runtime::endWithoutMemory(runtime::printable(text).c_str());
}

// Whatever needs memory would call it again.
void endByMemory(void *, const char *, bool) {
  runtime::endWithoutMemory("out of memory");
}

} // namespace

int main(int argc, char **argv) {
  // LLVM takes signals without asking whether they are ignored.
  auto ignored = llvm::to_vector(llvm::make_filter_range(
      std::array{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR2, SIGXCPU, SIGXFSZ},
      isIgnored));
  // LLVM would end the process with a code of its own at a closed pipe.
  llvm::InitLLVM init(argc, argv, /*InstallPipeSignalExitHandler=*/false);
  for (int signal : ignored)
    std::signal(signal, SIG_IGN);
  llvm::install_fatal_error_handler(endByError);
  llvm::install_bad_alloc_error_handler(endByMemory);
  int code = runtime::guarded([&] { return runTool(argc, argv); });
  // Help and versions go to std::cout.
  if (code == 0 && !std::cout.flush())
    code = int(runtime::printError(runError(
        "cannot write to stdout; make room, or omit the redirection")));
  // The code says what has failed; LLVM would end the process by a signal.
  llvm::outs().flush();
  llvm::outs().clear_error();
  llvm::errs().clear_error();
  return code;
}
