// emit_grid KERNELS.mlir [THREADS [host]]
//
// Prints kernels as grids with blocks of THREADS threads (default 256), or the
// code that the host runs for them.
#include "compiler/codegen/nvvm/DeviceCode.h"
#include "compiler/codegen/simt/GridModule.h"
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/rt/RTDialect.h"
#include "tests/numeric/kernel_harness.h"

#include "mlir/Parser/Parser.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

int main(int argc, char **argv) {
  if (argc < 2) {
    llvm::errs() << "usage: emit_grid KERNELS.mlir [THREADS [host]]\n";
    return 2;
  }
  DialectRegistry registry;
  simt::registerGridDialects(registry);
  registry.insert<fsdp::FSDPDialect, rt::RTDialect>();
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  testing::prepareContext(context);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(argv[1], &context);
  if (!module)
    return 1;
  simt::GridOptions options;
  if (argc > 2)
    options.threads = std::atoi(argv[2]);
  if (failed(testing::planKernels(*module, /*onGpu=*/true)) ||
      failed(prepareGrids(*module, options.threads)))
    return 1;
  OwningOpRef<ModuleOp> grid = argc > 3
                                   ? simt::emitGridForHost(*module, options)
                                   : simt::emitGrid(*module, options);
  if (!grid)
    return 1;
  for (auto kernel : module->getOps<func::FuncOp>())
    llvm::outs() << "// " << kernel.getSymName() << ": "
                 << kernel->getAttr(simt::kBlocksAttr) << " blocks of "
                 << kernel->getAttr(simt::kThreadsAttr) << "\n";
  llvm::outs() << *grid;
  return 0;
}
