// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// kernel_check DUMP.mlir [THREADS]
//
// Checks every kernel of a dump (after merge-kernels) against the reference
// interpreter on random operands: as host loops, or as grids with blocks of
// THREADS threads.
#include "tests/compiler/codegen/kernels/kernel_harness.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/NNDialect.h"

#include "mlir/Parser/Parser.h"

using namespace mlir;
using namespace fsdpc::testing;

int main(int argc, char **argv) {
  if (argc < 2) {
    llvm::errs() << "usage: kernel_check DUMP.mlir [THREADS]\n";
    return 2;
  }
  MLIRContext context;
  prepareContext(context);
  context.loadDialect<fsdpc::fsdp::FSDPDialect>();
  OwningOpRef<ModuleOp> dump = parseSourceFile<ModuleOp>(argv[1], &context);
  if (!dump)
    return 1;
  std::string text;
  llvm::raw_string_ostream stream(text);
  for (auto kernel : dump->getOps<func::FuncOp>())
    if (kernel->hasAttr(fsdpc::nn::NNDialect::kKernelAttr) &&
        !kernel->hasAttr("nn.optimizer") && !kernel->hasAttr("nn.rows"))
      stream << kernel << "\n";
  LoadedKernels loaded(context, text, "native", argc > 2 ? atoi(argv[2]) : 0);
  int wrong = 0;
  for (func::FuncOp kernel : loaded.kernels())
    for (bool positive : {false, true}) {
      // Integers this small are valid indices of any table.
      std::string error = checkKernel(loaded, kernel, /*bound=*/8, positive);
      if (!error.empty() && ++wrong)
        llvm::outs() << error << "\n";
    }
  llvm::outs() << loaded.kernels().size() << " kernels, " << wrong
               << " wrong\n";
  return wrong != 0;
}
