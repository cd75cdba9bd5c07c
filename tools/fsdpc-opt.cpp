// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fsdpc-opt runs passes by name on a module, like mlir-opt. It is meant for lit
// tests and for experiments.
#include "passes/pipeline/Registration.h"
#include "runtime/support/diagnostics.h"

#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  fsdpc::pipeline::registerDialects(registry);
  fsdpc::pipeline::registerPasses();
  return fsdpc::runtime::guarded([&] {
    return mlir::asMainReturnCode(
        mlir::MlirOptMain(argc, argv, "fsdpc pass driver\n", registry));
  });
}
