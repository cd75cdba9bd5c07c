// Compiles groups of kernels to PTX in parallel, then joins the PTX of each
// architecture into one module for ptxas, so that the program loads one cubin
// and pays the cost of a module once.
#include "compiler/codegen/nvvm/DeviceCode.h"

#include "compiler/codegen/Files.h"
#include "compiler/codegen/KernelCompiler.h"
#include "compiler/codegen/kernels/KernelModule.h"
#include "compiler/codegen/nvvm/Assemble.h"
#include "compiler/codegen/nvvm/EmitPtx.h"
#include "compiler/codegen/nvvm/LowerToNVVM.h"
#include "compiler/codegen/simt/GridModule.h"
#include "compiler/dialects/rt/RTDialect.h"

#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/raw_ostream.h"

#include <numeric>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

namespace {

constexpr int64_t kWidestLoad = 16;

// Sets `ptx` to the PTX of a group's kernels, one text per architecture.
// Returns an error message, or "".
std::string compileGroup(StringRef source, ArrayRef<GpuArch> archs,
                         MutableArrayRef<std::string> ptx) {
  DialectRegistry registry;
  simt::registerGridDialects(registry);
  kernels::registerGpuTranslations(registry);
  registry.insert<cf::ControlFlowDialect>(); // loops are lowered to it
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  std::string error;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    error += (error.empty() ? "" : "; ") + diagnostic.str();
    return success();
  });
  auto because = [&](const char *otherwise) {
    return error.empty() ? otherwise : error;
  };

  auto kernels = parseSourceString<ModuleOp>(source, &context);
  if (!kernels)
    return because("kernels do not parse");
  OwningOpRef<ModuleOp> grids = simt::emitGrid(*kernels, simt::GridOptions());
  if (!grids)
    return because("kernels cannot be emitted");
  if (failed(kernels::lowerToNVVM(*grids)))
    return because("kernels do not lower to NVVM");
  for (auto [arch, text] : llvm::zip(archs, ptx)) {
    std::string fault = kernels::emitPtx(*grids, arch, text);
    if (!fault.empty())
      return because(fault.c_str());
  }
  return "";
}

// Sets nn.alignments: for each operand, the number of bytes (at most those of
// the widest load) that divides its address in every launch of the kernel. The
// beginning of each memory space is aligned, so offsets decide.
void setAlignments(ModuleOp module) {
  llvm::MapVector<StringAttr, SmallVector<int64_t>> known;
  module.walk([&](rt::LaunchOp launch) {
    SmallVector<int64_t> &bytes = known[launch.getKernelAttr().getAttr()];
    bytes.resize(launch.getBuffers().size(), kWidestLoad);
    for (auto [least, buffer] : llvm::zip(bytes, launch.getBuffers()))
      if (auto pointer = buffer.getDefiningOp<rt::PointerOp>())
        least = std::gcd(least, static_cast<int64_t>(pointer.getOffset()));
  });
  SymbolTable symbols(module);
  for (auto &[name, bytes] : known)
    symbols.lookup(name)->setAttr(
        simt::kAlignmentsAttr,
        DenseI64ArrayAttr::get(module.getContext(), bytes));
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

LogicalResult fsdpc::codegen::prepareGrids(ModuleOp module, int64_t threads) {
  setAlignments(module);
  simt::GridOptions options;
  options.threads = threads;
  return simt::planGrids(module, options);
}

FailureOr<std::string>
fsdpc::codegen::compileDeviceCode(ModuleOp module, StringRef archNames,
                                  const CudaToolkit &toolkit, StringRef folder,
                                  StringRef report) {
  Location loc = module.getLoc();
  FailureOr<SmallVector<GpuArch>> archs = resolveGpuArchs(loc, archNames);
  if (failed(archs))
    return failure();
  // ptx[group · archs + arch]
  std::vector<std::string> ptx(countGroups(module) * archs->size());
  auto compile = [&](size_t group, StringRef source) {
    return compileGroup(source, *archs,
                        MutableArrayRef<std::string>(ptx).slice(
                            group * archs->size(), archs->size()));
  };
  if (failed(compileGroups(module, compile)))
    return failure();
  SmallVector<std::string> joined;
  for (size_t arch = 0; arch < archs->size(); ++arch) {
    std::vector<std::string> groups;
    for (size_t i = arch; i < ptx.size(); i += archs->size())
      groups.push_back(std::move(ptx[i]));
    joined.push_back(kernels::joinPtx(groups));
  }
  std::vector<KernelFigures> figures;
  FailureOr<std::string> code =
      assembleKernels(loc, toolkit, *archs, joined, folder, figures);
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
  simt::GridOptions options;
  options.threads = 1;
  options.roundsBf16 = processor.hasBf16();
  auto emit = [&](ModuleOp kernels) {
    return simt::emitGridForHost(kernels, options);
  };
  return compileKernels(
      module, [&](StringRef source, std::string &object, std::string &error) {
        kernels::compileModule(source, processor, emit, object, error);
      });
}
