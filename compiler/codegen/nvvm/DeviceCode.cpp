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

// Sets `ptx` to the PTX of a group's grids, one text per architecture. Returns
// an error message, or "".
std::string translate(ModuleOp grids, ArrayRef<GpuArch> archs,
                      MutableArrayRef<std::string> ptx) {
  // The group is lowered once and translated once per architecture.
  if (failed(kernels::lowerToNVVM(grids)))
    return "they do not lower to NVVM";
  for (auto [arch, text] : llvm::zip(archs, ptx)) {
    std::string fault = kernels::emitPtx(grids, arch, text);
    if (!fault.empty())
      return fault;
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
                                  StringRef report) {
  Location loc = module.getLoc();
  SmallVector<GpuArch> archs = gpuArchs(gpus);
  // ptx[group · archs + arch]
  std::vector<std::string> ptx(countGroups(module) * archs.size());
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
  auto toPtx = [&](size_t group, ModuleOp grids) {
    return translate(grids, archs,
                     MutableArrayRef<std::string>(ptx).slice(
                         group * archs.size(), archs.size()));
  };
  if (failed(compileGroups(module, lower, toPtx)))
    return failure();
  // In the order of the groups, so the text does not depend on the number of
  // threads.
  SmallVector<std::string> joined;
  for (size_t arch = 0; arch < archs.size(); ++arch) {
    std::vector<std::string> groups;
    for (size_t i = arch; i < ptx.size(); i += archs.size())
      groups.push_back(std::move(ptx[i]));
    joined.push_back(kernels::joinPtx(groups));
  }
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

FailureOr<std::vector<std::string>>
fsdpc::codegen::compileEmulatedCode(ModuleOp module,
                                    const TargetOptions &processor) {
  // No lanes are chosen here: the width of a vector is a decision of the grid.
  EmitGridsOptions options;
  options.roundsBf16 = processor.hasBf16();
  return compileKernels(module, processor, [&](OpPassManager &manager) {
    manager.addPass(createEmitGrids(options));
    manager.addPass(createExpandMath());
    manager.addPass(createLowerGridsToHost());
  });
}
