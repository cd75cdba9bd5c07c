// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the model or the dump of a command line, after all that can be checked
// without reading it: a model of many gigabytes takes long, and its user has
// mistyped a folder.
#include "tools/fsdpc/Load.h"

#include "compiler/codegen/Link.h"
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/options/OptionTable.h"
#include "passes/pipeline/Dump.h"
#include "passes/pipeline/Pipeline.h"
#include "runtime/support/input_file.h"
#include "tools/fsdpc/Buckets.h"
#include "tools/fsdpc/Diagnostics.h"
#include "tools/fsdpc/DumpSources.h"
#include "tools/fsdpc/Summary.h"
#include "tools/fsdpc/TextStreams.h"
#include "tools/plan/Simulate.h"

#include "llvm/Support/raw_ostream.h"

#include <set>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::driver;
using namespace fsdpc::codegen;
using namespace fsdpc::frontend;
using namespace fsdpc::pipeline;
using fsdpc::fsdp::CompileOptions;

LogicalResult fsdpc::driver::usageError(const Twine &text) {
  Progress::clear();
  textErr() << "error: " << text << "\n";
  return failure();
}

FailureOr<OwningOpRef<ModuleOp>>
fsdpc::driver::importModel(StringRef path, CompileOptions options,
                           MLIRContext *context, ImportSummary *summary) {
  auto module = importOnnx(path, options, context, summary);
  if (failed(module))
    return failure();
  // From here on the module carries its options, and passes read them there.
  (**module)->setAttr(fsdp::CompileOptions::kAttribute,
                      fsdp::writeOptions(options, context));
  (**module)->setAttr(fsdp::FSDPDialect::kDoneAttr,
                      StringAttr::get(context, "import"));
  return module;
}

std::vector<std::string> fsdpc::driver::outputsOf(const CommandLine &line) {
  std::vector<std::string> outputs;
  for (const std::string &path :
       {line.output, line.kernelReport, line.scheduleTable, line.report,
        line.plan.json})
    if (!path.empty() && path != "-")
      outputs.push_back(path);
  return outputs;
}

namespace {

// A dump keeps the options it was made with. A flag that contradicts them is an
// error, since passes that have run already depend on them.
LogicalResult checkAgainstDump(ModuleOp module, const CompileOptions &given) {
  CompileOptions kept = CompileOptions::of(module);
  MLIRContext *context = module.getContext();
  for (const fsdp::OptionInfo *option : given.given) {
    // Compares attributes rather than values, since an option knows how to
    // write itself.
    Attribute before = option->write(kept, context);
    if (before == option->write(given, context))
      continue;
    textErr() << "error: '--" << option->name
              << "' conflicts with the dump, which was compiled ";
    std::string text = option->print(kept);
    // The dump's flag, or the default that it was compiled with, must be shown:
    // the user has to know which of the two to change.
    if (llvm::is_contained(kept.given, option))
      textErr() << "with " << before;
    else if (!text.empty())
      textErr() << "without it (default '" << text << "')";
    else
      textErr() << "without it";
    textErr() << "; omit the flag, or compile the model again\n";
    return failure();
  }
  return success();
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

// Fills in `executable`, and checks all that the outputs, the target and the
// link need: before the import, since a compile can take minutes. Returns 0
// or the exit code.
int prepareOutput(const CommandLine &line, fsdp::Target target,
                  MLIRContext *context, ExecutableOptions &executable) {
  executable.path = line.output;
  executable.commandLine = line.text;
  executable.absolutePaths = line.absolutePaths;
  executable.dumpFolder = line.dumpFolder;
  executable.kernelReport = line.kernelReport;
  if (failed(checkTarget(line, target)))
    return kUsageFault;
  Location nowhere = UnknownLoc::get(context);
  for (const std::string &path : outputsOf(line))
    if (failed(checkOutput(nowhere, path)))
      return kInputFault;
  // Without a program there is nothing to link, so no toolkit is needed.
  if (line.last != Phase::Executable)
    return 0;
  if (target == fsdp::Target::Cuda) {
    FailureOr<CudaToolkit> toolkit = findCudaToolkit(nowhere, line.cudaPath);
    if (failed(toolkit))
      return kUsageFault;
    executable.toolkit = *toolkit;
  }
  return failed(findLinkInputs(nowhere, target)) ? kUsageFault : 0;
}

// Refuses outputs that would replace what was read: the model, its external
// data, a dump or its constants, under any name.
LogicalResult checkOverwrites(const CommandLine &line,
                              std::set<FileIdentity> read) {
  std::vector<std::string> outputs = outputsOf(line);
  for (const std::string &path : {line.reportTrace, line.profile})
    if (std::optional<FileIdentity> trace = identityOf(path))
      read.insert(*trace);
  if (!line.dumpFolder.empty()) {
    // Dumps have fixed names, so a dump may be about to replace the very file
    // that is compiled.
    for (size_t bucket = 0; bucket < bucketCount(line); ++bucket) {
      std::string folder = dumpFolderOf(line, bucket);
      outputs.push_back(dumpPath(folder, 0, "import"));
      for (auto [index, step] : llvm::enumerate(pipelineSteps()))
        outputs.push_back(dumpPath(folder, index + 1, step.name));
    }
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

// Reads a dump, and checks the command line against it.
OwningOpRef<ModuleOp> loadDump(const CommandLine &line, MLIRContext *context,
                               ExecutableOptions &executable, int &code) {
  std::set<FileIdentity> read;
  OwningOpRef<ModuleOp> module = readDump(line.model, context, &read);
  if (!module)
    return nullptr;
  CompileOptions given = line.options;
  if (line.command == Command::Simulate)
    plan::takeMachine(*module, given);
  code = failed(checkAgainstDump(*module, given)) ||
                 failed(checkOverwrites(line, std::move(read)))
             ? kUsageFault
         // Only a link reads weights.
         : line.last == Phase::Executable &&
                 failed(checkSources(*module, line.model, line.weightFolders))
             ? kInputFault
             : prepareOutput(line, CompileOptions::of(*module).target, context,
                             executable);
  return code ? nullptr : std::move(module);
}

// Imports the model once per bucket. Only the first import is reported: the
// others differ in shapes.
std::vector<OwningOpRef<ModuleOp>>
importBuckets(const CommandLine &line, MLIRContext *context, int &code) {
  std::vector<OwningOpRef<ModuleOp>> modules;
  for (size_t bucket = 0; bucket < bucketCount(line); ++bucket) {
    // Warnings of the first import hold for all of them.
    ScopedDiagnosticHandler quiet(context, [&](Diagnostic &diagnostic) {
      return success(bucket > 0 &&
                     diagnostic.getSeverity() != DiagnosticSeverity::Error);
    });
    BucketErrors named(context, line, bucket);
    ImportSummary summary;
    auto module =
        importModel(line.model, optionsOf(line, bucket), context, &summary);
    if (failed(module))
      return {};
    if (bucket == 0 && failed(checkOverwrites(line, summary.files))) {
      code = kUsageFault;
      return {};
    }
    if (bucket == 0 && !line.quiet)
      printImportSummary(summary);
    std::string folder = dumpFolderOf(line, bucket);
    if (!folder.empty() &&
        failed(writeNumberedDump(**module, folder, 0, "import", line.dumpForm)))
      return {};
    modules.push_back(std::move(*module));
  }
  return modules;
}

} // namespace

std::vector<OwningOpRef<ModuleOp>>
fsdpc::driver::load(const CommandLine &line, MLIRContext *context,
                    ExecutableOptions &executable, int &code) {
  code = kInputFault;
  std::vector<OwningOpRef<ModuleOp>> modules;
  auto refuse = [&](int fault) {
    code = fault;
    return std::vector<OwningOpRef<ModuleOp>>();
  };
  if (std::string fault = checkBuckets(line); !fault.empty())
    return (void)usageError(fault), refuse(kUsageFault);
  // A dump brings its options, so the target is known only after it has been
  // read. For a model, the checks come before the import.
  if (StringRef(line.model).ends_with(".mlir")) {
    if (OwningOpRef<ModuleOp> dump = loadDump(line, context, executable, code))
      modules.push_back(std::move(dump));
    return modules;
  }
  if (std::string fault = fsdp::checkOptions(line.options); !fault.empty())
    return (void)usageError(fault), refuse(kUsageFault);
  if (line.plan.measured > 0 && line.options.target != fsdp::Target::Host)
    return (void)usageError("'--measure' runs programs on this machine; it "
                            "requires '--target=host'"),
           refuse(kUsageFault);
  if (int fault = prepareOutput(line, line.options.target, context, executable))
    return refuse(fault);
  return importBuckets(line, context, code);
}
