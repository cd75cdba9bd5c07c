// fsdpc compiles an ONNX training graph, or a dump of an earlier compile, to
// one program. Exit codes: 0 done, 1 the input is at fault, 2 the command line
// is at fault. Everything that can be checked without compiling (the output's
// folder, the toolkit, contradictory flags) is checked first, since a compile
// takes long.
#include "compiler/codegen/Executable.h"
#include "compiler/codegen/Link.h"
#include "compiler/codegen/ManifestBuilder.h"
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/OptionTable.h"
#include "compiler/pipeline/Dump.h"
#include "compiler/pipeline/Pipeline.h"
#include "compiler/pipeline/Registration.h"
#include "frontends/onnx/Import.h"
#include "tools/calibrate/command.h"
#include "tools/ckpt/commands.h"
#include "tools/export/Export.h"
#include "tools/fsdpc/CommandLine.h"
#include "tools/fsdpc/Diagnostics.h"
#include "tools/fsdpc/Summary.h"
#include "tools/top/top.h"

#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

#include <set>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::driver;
using namespace fsdpc::codegen;
using namespace fsdpc::frontend;
using namespace fsdpc::pipeline;
using fsdpc::fsdp::CompileOptions;

namespace {

constexpr int inputFault = 1, usageFault = 2;

// A dump keeps the options it was made with. A flag that contradicts them is an
// error, since passes that have run already depend on them.
LogicalResult checkAgainstDump(ModuleOp module, const CompileOptions &given) {
  CompileOptions kept = CompileOptions::of(module);
  MLIRContext *context = module.getContext();
  // Only flags that were given: absent ones leave the dump's values.
  for (const fsdp::OptionInfo *option : given.given) {
    // Compares attributes rather than values, since an option knows how to
    // write itself.
    Attribute before = option->write(kept, context);
    if (before == option->write(given, context))
      continue;
    llvm::errs() << "error: '--" << option->name
                 << "' conflicts with the dump, which was compiled ";
    std::string text = option->print(kept);
    // The dump's flag, or the default that it was compiled with, must be shown:
    // the user has to know which of the two to change.
    if (llvm::is_contained(kept.given, option))
      llvm::errs() << "with " << before;
    else if (!text.empty())
      llvm::errs() << "without it (default '" << text << "')";
    else
      llvm::errs() << "without it";
    llvm::errs() << "; omit the flag, or compile the model again\n";
    return failure();
  }
  return success();
}

// Prints an error that belongs to no place in the input.
LogicalResult usageError(const Twine &text) {
  Progress::clear();
  llvm::errs() << "error: " << text << "\n";
  return failure();
}

// Refuses the driver's own flags where they would be ignored: that would
// quietly build a different program than was meant.
LogicalResult checkTarget(const CommandLine &line, fsdp::Target target) {
  auto needsCuda = [&](StringRef flag) {
    return usageError("'--" + flag +
                      "' requires '--target=cuda'; the target is '" +
                      nameOf(target) + "'");
  };
  bool onGpu = target == fsdp::Target::Cuda;
  if (!line.cudaPath.empty() && !onGpu)
    return needsCuda("cuda-path");
  if (line.kernelReport.empty())
    return success();
  if (!onGpu)
    return needsCuda("kernel-report");
  if (line.last != Phase::Executable)
    return usageError(
        "'--kernel-report' requires a full compile; omit '--compile-to'");
  return success();
}

// Fills in `executable`, and checks all that the program's file, its target and
// its link need: before the import, since a compile can take minutes. Returns 0
// or the exit code.
int prepareOutput(const CommandLine &line, fsdp::Target target,
                  MLIRContext *context, ExecutableOptions &executable) {
  executable.path = line.output;
  executable.commandLine = line.text;
  executable.dumpFolder = line.dumpFolder;
  executable.kernelReport = line.kernelReport;
  if (failed(checkTarget(line, target)))
    return usageFault;
  // Without a program there is nothing to link, so neither folder nor toolkit
  // is needed.
  if (line.last != Phase::Executable)
    return 0;
  // The faults below are of no place in the model.
  Location nowhere = UnknownLoc::get(context);
  if (failed(checkOutput(nowhere, line.output)))
    return inputFault;
  if (target == fsdp::Target::Cuda) {
    FailureOr<CudaToolkit> toolkit = findCudaToolkit(nowhere, line.cudaPath);
    if (failed(toolkit))
      return usageFault;
    executable.toolkit = *toolkit;
  }
  return failed(findLinkInputs(nowhere, target)) ? usageFault : 0;
}

// Refuses outputs that would replace what was read: the model, its external
// data, a dump or its constants, under any name.
LogicalResult checkOverwrites(const CommandLine &line,
                              const std::set<FileIdentity> &read) {
  std::vector<std::string> outputs{line.kernelReport, line.scheduleTable};
  if (line.output != "-")
    outputs.push_back(line.output);
  if (!line.dumpFolder.empty()) {
    // Dumps have fixed names, so a dump may be about to replace the very file
    // that is compiled.
    outputs.push_back(dumpPath(line.dumpFolder, 0, "import"));
    for (auto [index, step] : llvm::enumerate(pipelineSteps()))
      outputs.push_back(dumpPath(line.dumpFolder, index + 1, step.name));
  }
  // Paths are compared by file identity, so that links and other spellings
  // count.
  for (const std::string &output : outputs) {
    std::optional<FileIdentity> id = identityOf(output);
    if (id && read.count(*id))
      return usageError("'" + output + "' is a file that '" + line.model +
                        "' is read from; choose another output");
  }
  return success();
}

// Returns the module to compile, with its options. Returns null after an error
// and sets `code` to the exit code.
OwningOpRef<ModuleOp> load(const CommandLine &line, MLIRContext *context,
                           ExecutableOptions &executable, int &code) {
  code = inputFault;
  // A dump brings its options, so the target is known only after it has been
  // read. For a model, the checks come before the import.
  if (StringRef(line.model).ends_with(".mlir")) {
    // By device and inode.
    std::set<FileIdentity> read;
    OwningOpRef<ModuleOp> module = readDump(line.model, context, &read);
    if (!module)
      return nullptr;
    code = failed(checkAgainstDump(*module, line.options)) ||
                   failed(checkOverwrites(line, read))
               ? usageFault
               : prepareOutput(line, CompileOptions::of(*module).target,
                               context, executable);
    return code ? nullptr : std::move(module);
  }
  if (std::string fault = fsdp::checkOptions(line.options); !fault.empty()) {
    code = usageFault;
    return (void)usageError(fault), nullptr;
  }
  if (int fault =
          prepareOutput(line, line.options.target, context, executable)) {
    code = fault;
    return nullptr;
  }
  ImportSummary summary;
  auto module = importOnnx(line.model, line.options, context, &summary);
  if (failed(module))
    return nullptr;
  // After the import, which finds out what files the model has; nothing has
  // been written yet.
  if (failed(checkOverwrites(line, summary.files))) {
    code = usageFault;
    return nullptr;
  }
  // From here on the module carries its options, and passes read them there.
  (**module)->setAttr(fsdp::FSDPDialect::kOptionsAttr,
                      fsdp::writeOptions(line.options, context));
  // The last step that has run: a compile of the dump goes on behind it.
  (**module)->setAttr(fsdp::FSDPDialect::kDoneAttr,
                      StringAttr::get(context, "import"));
  if (!line.quiet)
    printImportSummary(summary);
  if (!line.dumpFolder.empty() &&
      failed(writeNumberedDump(**module, line.dumpFolder, 0, "import")))
    return nullptr;
  return std::move(*module);
}

// Returns failure after an error if what was printed has not arrived, as on a
// full disk. LLVM would end the process by a signal otherwise.
LogicalResult flushOutput() {
  llvm::outs().flush();
  std::error_code error = llvm::outs().error();
  if (!error)
    return success();
  llvm::outs().clear_error();
  return usageError("cannot write to stdout: " + error.message());
}

// Writes a dump to `path`, or prints to stdout for "-".
LogicalResult writeModule(ModuleOp module, StringRef path) {
  if (!path.empty() && path != "-")
    return writeDump(module, path);
  module.print(llvm::outs(), OpPrintingFlags().enableDebugInfo(true, false));
  llvm::outs() << '\n';
  return flushOutput();
}

// Refuses a program whose peak exceeds --memory-limit. The compiler has planned
// for the limit, but the stacks of kernels are known only when they are
// compiled.
LogicalResult checkPeak(const Manifest &manifest) {
  int64_t peak = plannedPeak(manifest, manifest.planRanks);
  if (manifest.memoryLimit == 0 || peak <= manifest.memoryLimit)
    return success();
  return usageError("peak memory of " + Twine(peak) +
                    " bytes per rank exceeds --memory-limit of " +
                    Twine(manifest.memoryLimit) +
                    " bytes; increase --memory-limit or --plan-ranks");
}

// Prints what a compile would print, of a module whose kernels are not
// compiled.
LogicalResult reportCheck(const CommandLine &line, ModuleOp module) {
  printModelSummary(module);
  printUnits(module);
  // Tables and manifest are those of a program without code.
  ProgramTables tables(module);
  Manifest manifest = buildManifest(module, tables);
  manifest.cpu = nameOf(CompileOptions::of(module).cpu);
  printMemoryTable(manifest);
  if (failed(checkPeak(manifest)))
    return failure();
  llvm::outs() << "'" << line.model << "' compiles\n";
  return success();
}

// The steps of a compile. Returns the exit code.
int compile(const CommandLine &line) {
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry);
  context.printOpOnDiagnostic(false); // a module is long
  DiagnosticPrinter diagnostics(&context, line.quiet);

  int code = 0;
  ExecutableOptions executable;
  Timing timing(line.timing);
  timing.begin("import");
  OwningOpRef<ModuleOp> module = load(line, &context, executable, code);
  if (!module)
    return code;
  PipelineOptions options;
  options.last = line.last;
  options.dumpFolder = line.dumpFolder;
  options.scheduleTable = line.scheduleTable;
  Progress progress(line.quiet, pipelineSteps().size());
  options.progress = [&](const PipelineStep &step) {
    progress.step(step.name);
    timing.begin(step.name);
  };
  // The diagnostics have been printed by their handler.
  if (failed(runPipeline(*module, options)))
    return inputFault;
  Progress::clear();
  timing.begin(line.last == Phase::Executable ? "program" : "write");
  if (line.isCheck)
    return failed(reportCheck(line, *module)) ? inputFault : 0;
  if (line.last != Phase::Executable) {
    // The module may go to stdout.
    bool toFile = !line.output.empty() && line.output != "-";
    if (!line.quiet && toFile && line.last >= Phase::Schedule) {
      printModelSummary(*module);
      printPrediction(*module);
    }
    LogicalResult written = writeModule(*module, line.output);
    // Ends the last step.
    timing.begin("");
    return failed(written) ? inputFault : 0;
  }

  if (!line.quiet) {
    printModelSummary(*module);
    printPrediction(*module);
  }
  // Called when the program is linked and not yet written, since the stacks of
  // kernels are part of the peak.
  executable.accept = [&](const Manifest &manifest) {
    if (!line.quiet)
      printMemoryTable(manifest);
    return checkPeak(manifest);
  };
  bool built = succeeded(buildExecutable(*module, executable));
  timing.begin("");
  return built ? 0 : inputFault;
}

} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  // A model that is called as a subcommand is written './ckpt'.
  StringRef command = argc > 1 ? argv[1] : "";
  if (command == "ckpt")
    return ckpt::runCkpt(argc - 1, argv + 1);
  if (command == "calibrate")
    return calibrate::runCalibrate(argc - 1, argv + 1);
  if (command == "top")
    return top::runTop(argc - 1, argv + 1);
  if (command == "export") {
    exporting::Arguments arguments;
    int code = exporting::parseArguments(argc - 1, argv + 1, arguments);
    return code >= 0 ? code : exporting::run(arguments);
  }
  CommandLine line;
  line.isCheck = command == "check";
  int skipped = line.isCheck; // the subcommand takes the place of the program
  if (int code = parseCommandLine(argc - skipped, argv + skipped, line);
      code >= 0)
    return code;
  int code = compile(line);
  // Success includes that everything printed has arrived.
  if (code == 0)
    return failed(flushOutput()) ? inputFault : 0;
  // The error is printed already.
  llvm::outs().flush();
  llvm::outs().clear_error();
  return code;
}
