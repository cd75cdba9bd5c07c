// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles groups of kernels to PTX in parallel, then joins the PTX of each
// architecture into one module for ptxas, so that the program loads one cubin
// and pays the cost of a module once.
#include "compiler/codegen/nvvm/DeviceCode.h"

#include "compiler/codegen/Files.h"
#include "compiler/codegen/KernelCompiler.h"
#include "compiler/codegen/Passes.h"
#include "compiler/codegen/nvvm/Assemble.h"
#include "compiler/codegen/nvvm/EmitPtx.h"
#include "compiler/codegen/nvvm/LowerToNVVM.h"

#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

namespace {

// Sets `code` to the PTX of a group's grids: one text per architecture, each
// with a zero at its end. Returns an error message, or "".
std::string translate(ModuleOp grids, ArrayRef<GpuArch> archs,
                      std::string &code) {
  // The group is lowered once and translated once per architecture.
  if (failed(kernels::lowerToNVVM(grids)))
    return "they do not lower to NVVM";
  for (const GpuArch &arch : archs) {
    std::string ptx, fault = kernels::emitPtx(grids, arch, ptx);
    if (!fault.empty())
      return fault;
    code += ptx + '\0';
  }
  return "";
}

// The text of --kernel-report: tab-separated, with a header line.
std::string reportOf(ArrayRef<KernelFigures> figures) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream
      << "kernel\tarch\tregisters\tstack\tspill_stores\tspill_loads\tshared\n";
  for (const KernelFigures &row : figures)
    stream << row.kernel << '\t' << row.arch << '\t' << row.registers << '\t'
           << row.stackBytes << '\t' << row.spillStores << '\t'
           << row.spillLoads << '\t' << row.sharedBytes << '\n';
  return text;
}

} // namespace

FailureOr<std::string>
fsdpc::codegen::compileDeviceCode(ModuleOp module, ArrayRef<fsdp::Gpu> gpus,
                                  const CudaToolkit &toolkit, StringRef folder,
                                  StringRef report, const KernelHelp &help) {
  Location loc = module.getLoc();
  SmallVector<GpuArch> archs = gpuArchs(gpus);
  DialectRegistry registry;
  kernels::registerGpuTranslations(registry);
  module.getContext()->appendDialectRegistry(registry);
  bool approximates = fsdp::CompileOptions::of(module).approximates();
  // Threads must not load dialects.
  module.getContext()->loadDialect<cf::ControlFlowDialect>();
  auto lower = [&](OpPassManager &manager) {
    manager.addPass(createEmitGrids());
    if (approximates)
      manager.addPass(createApproximateMath());
    manager.addPass(createExpandMath());
    if (approximates)
      manager.addPass(createApproximateMath());
  };
  std::string recipe = approximates ? "ptx approximates" : "ptx";
  for (const GpuArch &arch : archs)
    recipe += " " + arch.name.str();
  auto toPtx = [&](ModuleOp grids, std::string &ptx) {
    return translate(grids, archs, ptx);
  };
  FailureOr<std::vector<std::string>> groups =
      compileGroups(module, recipe, lower, toPtx, help);
  if (failed(groups))
    return failure();
  help.beginPart("cubins");
  // In the order of the groups, so the text does not depend on the number of
  // threads.
  std::vector<std::vector<std::string>> ptx(archs.size());
  for (StringRef group : *groups)
    for (std::vector<std::string> &texts : ptx) {
      auto [text, rest] = group.split('\0');
      texts.push_back(text.str());
      group = rest;
    }
  SmallVector<std::string> joined;
  for (const std::vector<std::string> &texts : ptx)
    joined.push_back(kernels::joinPtx(texts));
  std::vector<KernelFigures> figures;
  FailureOr<std::string> code =
      assembleKernels(loc, toolkit, archs, joined, folder, figures);
  // Only a complete build reports.
  if (succeeded(code) && !report.empty()) {
    std::string error = writeFile(report, reportOf(figures));
    if (!error.empty())
      return emitError(loc) << error;
  }
  return code;
}

FailureOr<std::vector<std::string>> fsdpc::codegen::compileEmulatedCode(
    ModuleOp module, const TargetOptions &processor, const KernelHelp &help) {
  // No lanes are chosen here: the width of a vector is a decision of the grid.
  EmitGridsOptions options;
  options.roundsBf16 = processor.hasBf16();
  auto emit = [&](OpPassManager &manager) {
    manager.addPass(createEmitGrids(options));
    manager.addPass(createExpandMath());
    manager.addPass(createLowerGridsToHost());
  };
  return compileKernels(module, processor, "emulation", emit, help);
}
