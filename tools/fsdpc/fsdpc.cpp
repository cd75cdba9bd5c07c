// fsdpc compiles an ONNX training graph, or a dump of an earlier compile, to
// one program. Exit codes: 0 done, 1 the input is at fault, 2 the command line
// is at fault. Everything that can be checked without compiling (the output's
// folder, the toolkit, contradictory flags) is checked first, since a compile
// takes long.
#include "compiler/codegen/Executable.h"
#include "compiler/codegen/Link.h"
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/Options.h"
#include "compiler/pipeline/Dump.h"
#include "compiler/pipeline/Pipeline.h"
#include "compiler/pipeline/Registration.h"
#include "frontends/onnx/Import.h"
#include "tools/fsdpc/CommandLine.h"
#include "tools/fsdpc/Diagnostics.h"
#include "tools/fsdpc/Summary.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::driver;
using namespace fsdpc::codegen;
using namespace fsdpc::frontend;
using namespace fsdpc::pipeline;

namespace {

constexpr int inputFault = 1, usageFault = 2;

// Returns the given options as attributes. Repeated flags become arrays.
DictionaryAttr optionsOf(const CommandLine &line, MLIRContext *context) {
  NamedAttrList options;
  for (const auto &[name, value] : line.options) {
    std::string error;
    Attribute attribute =
        fsdp::parseOption(*fsdp::findOption(name), value, context, error);
    auto array = dyn_cast<ArrayAttr>(attribute);
    if (auto earlier = dyn_cast_or_null<ArrayAttr>(options.get(name));
        earlier && array) {
      SmallVector<Attribute> all(earlier.getValue());
      llvm::append_range(all, array);
      attribute = ArrayAttr::get(context, all);
    }
    options.set(name, attribute);
  }
  return options.getDictionary(context);
}

// Collects the options that the importer needs from the table's attributes.
ImportOptions importOptionsOf(ModuleOp options) {
  ImportOptions result;
  auto mode = [&](StringRef name) {
    return llvm::StringSwitch<TrainingMode>(fsdp::getString(options, name))
        .Case("graph", TrainingMode::graph)
        .Case("off", TrainingMode::off)
        .Default(TrainingMode::on);
  };
  auto strings = [&](StringRef name) {
    auto values = fsdp::getStrings(options, name);
    return std::vector<std::string>(values.begin(), values.end());
  };
  result.loss = fsdp::getString(options, "loss");
  for (const std::string &dim : strings("dim")) {
    auto [name, value] = StringRef(dim).rsplit('=');
    if (value.getAsInteger(10, result.dims[name.str()]))
      result.dims[name.str()] = -1; // refused by checkImportOptions
  }
  result.batchnorm = mode("batchnorm");
  result.dropout = mode("dropout");
  result.frozen = strings("frozen");
  result.trainable = strings("trainable");
  result.initRules = strings("init-rule");
  result.embedWeights = fsdp::getFlag(options, "embed-weights");
  return result;
}

// A dump keeps the options it was made with. A flag that contradicts them is an
// error, since passes that have run already depend on them.
LogicalResult checkAgainstDump(ModuleOp module, DictionaryAttr given) {
  auto kept =
      module->getAttrOfType<DictionaryAttr>(fsdp::FSDPDialect::kOptionsAttr);
  for (NamedAttribute option : given) {
    StringRef name = option.getName().getValue();
    Attribute before = kept ? kept.get(name) : Attribute();
    std::string made = "without it";
    if (before) {
      made = "with ";
      llvm::raw_string_ostream(made) << before;
    } else if (const fsdp::OptionInfo &known = *fsdp::findOption(name);
               !known.defaultValue.empty()) {
      std::string error;
      before = fsdp::parseOption(known, known.defaultValue, module.getContext(),
                                 error);
      made += " (default '" + known.defaultValue.str() + "')";
    }
    if (before == option.getValue())
      continue;
    llvm::errs() << "error: '--" << name
                 << "' conflicts with the dump, which was compiled " << made
                 << "; omit the flag, or compile the model again\n";
    return failure();
  }
  return success();
}

// Refuses flags that only apply to programs for GPUs if the target is another
// one. Ignoring them would quietly build a different program than was meant.
LogicalResult checkTarget(const CommandLine &line, ModuleOp module) {
  std::string target = fsdp::getString(module, "target");
  auto refuse = [&](StringRef flag, StringRef why) {
    llvm::errs() << "error: '" << flag << "' " << why << "\n";
    return failure();
  };
  bool archs = llvm::any_of(line.options, [](const auto &option) {
    return option.first == "gpu-arch";
  });
  if (archs && target == "host")
    return refuse("--gpu-arch",
                  "requires '--target=cuda'; the target is 'host'");
  if (line.kernelReport.empty())
    return success();
  if (target != "cuda")
    return refuse("--kernel-report",
                  "requires '--target=cuda'; the target is '" + target + "'");
  if (line.last != Phase::Executable)
    return refuse("--kernel-report",
                  "requires a full compile; omit '--compile-to'");
  return success();
}

// Fills in `executable`, and checks all that the program's file, its target and
// its link need: before the import, since a compile can take minutes. `options`
// is a module with the options of the compile. Returns 0 or the exit code.
int prepareOutput(const CommandLine &line, ModuleOp options,
                  ExecutableOptions &executable) {
  executable.path = line.output;
  executable.commandLine = line.text;
  executable.dumpFolder = line.dumpFolder;
  executable.kernelReport = line.kernelReport;
  if (failed(checkTarget(line, options)))
    return usageFault;
  if (line.last != Phase::Executable)
    return 0;
  Location nowhere = UnknownLoc::get(options.getContext());
  if (failed(checkOutput(nowhere, line.output)))
    return inputFault;
  std::string target = fsdp::getString(options, "target");
  if (target == "cuda") {
    FailureOr<CudaToolkit> toolkit = findCudaToolkit(nowhere, line.cudaPath);
    if (failed(toolkit))
      return usageFault;
    executable.toolkit = *toolkit;
  }
  return failed(findLinkInputs(nowhere, target)) ? usageFault : 0;
}

// Returns the module to compile, with its options. Returns null after an error
// and sets `code` to the exit code.
OwningOpRef<ModuleOp> load(const CommandLine &line, MLIRContext *context,
                           ExecutableOptions &executable, int &code) {
  code = inputFault;
  DictionaryAttr options = optionsOf(line, context);
  if (StringRef(line.model).ends_with(".mlir")) {
    OwningOpRef<ModuleOp> module = readDump(line.model, context);
    if (!module)
      return nullptr;
    code = failed(checkAgainstDump(*module, options))
               ? usageFault
               : prepareOutput(line, *module, executable);
    return code ? nullptr : std::move(module);
  }
  OwningOpRef<ModuleOp> holder = ModuleOp::create(UnknownLoc::get(context));
  (*holder)->setAttr(fsdp::FSDPDialect::kOptionsAttr, options);
  ImportOptions importOptions = importOptionsOf(*holder);
  if (std::optional<std::string> fault = checkImportOptions(importOptions)) {
    llvm::errs() << "error: " << *fault << "\n";
    code = usageFault;
    return nullptr;
  }
  if (int fault = prepareOutput(line, *holder, executable)) {
    code = fault;
    return nullptr;
  }
  ImportSummary summary;
  auto module = importOnnx(line.model, importOptions, context, &summary);
  if (failed(module))
    return nullptr;
  (**module)->setAttr(fsdp::FSDPDialect::kOptionsAttr, options);
  (**module)->setAttr(fsdp::FSDPDialect::kDoneAttr,
                      StringAttr::get(context, "import"));
  if (!line.quiet)
    printImportSummary(summary);
  if (!line.dumpFolder.empty() &&
      failed(writeNumberedDump(**module, line.dumpFolder, 0, "import")))
    return nullptr;
  return std::move(*module);
}

// Writes a dump to `path`, or prints to stdout for "-".
LogicalResult writeModule(ModuleOp module, StringRef path) {
  if (!path.empty() && path != "-")
    return writeDump(module, path);
  module.print(llvm::outs(), OpPrintingFlags().enableDebugInfo(true, false));
  llvm::outs() << '\n';
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
  OwningOpRef<ModuleOp> module = load(line, &context, executable, code);
  if (!module)
    return code;
  PipelineOptions options;
  options.last = line.last;
  options.dumpFolder = line.dumpFolder;
  Progress progress(line.quiet, pipelineSteps().size());
  options.progress = [&](const PipelineStep &step) {
    progress.step(step.name);
  };
  if (failed(runPipeline(*module, options)))
    return inputFault;
  progress.done();
  if (line.last != Phase::Executable)
    return failed(writeModule(*module, line.output)) ? inputFault : 0;

  if (!line.quiet)
    printModelSummary(*module);
  FailureOr<Manifest> manifest = buildExecutable(*module, executable);
  if (failed(manifest))
    return inputFault;
  if (!line.quiet)
    printMemoryTable(*manifest);
  // The stacks of kernels are known only now, so the cap is checked once more.
  int64_t peak = plannedPeak(*manifest, manifest->planRanks);
  if (manifest->memoryLimit == 0 || peak <= manifest->memoryLimit)
    return 0;
  llvm::sys::fs::remove(line.output);
  llvm::errs() << "error: peak memory of " << peak
               << " bytes per rank exceeds --memory-limit of "
               << manifest->memoryLimit
               << " bytes; increase --memory-limit or --plan-ranks\n";
  return inputFault;
}

} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  CommandLine line;
  if (int code = parseCommandLine(argc, argv, line); code >= 0)
    return code;
  return compile(line);
}
