// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Registers every dialect and pass that the tools know.
#include "passes/pipeline/Registration.h"

#include "compiler/codegen/Passes.h"
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/rt/RTDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Transforms/Passes.h"
#include "passes/collectives/Passes.h"
#include "passes/grad/Passes.h"
#include "passes/import/Passes.h"
#include "passes/kernels/Passes.h"
#include "passes/memory/Passes.h"
#include "passes/runtime/Passes.h"
#include "passes/schedule/Passes.h"
#include "passes/shard/Passes.h"
#include "passes/units/Passes.h"

// Dialects of code generation are loaded by the passes that use them.
void fsdpc::pipeline::registerDialects(mlir::DialectRegistry &registry) {
  registry.insert<mlir::arith::ArithDialect, mlir::func::FuncDialect,
                  mlir::math::MathDialect, nn::NNDialect, fsdp::FSDPDialect,
                  rt::RTDialect>();
}

void fsdpc::pipeline::registerPasses() {
  // The pipeline uses only these two upstream passes.
  mlir::registerCanonicalizer();
  mlir::registerCSE();
  // The names of these functions hold the stage (-gen-pass-decls -name=…).
  passes::registerimportPasses();
  passes::registerunitsPasses();
  passes::registergradPasses();
  passes::registershardPasses();
  passes::registerkernelsPasses();
  passes::registercollectivesPasses();
  passes::registerschedulePasses();
  passes::registermemoryPasses();
  passes::registerruntimePasses();
  codegen::registercodegenPasses();
}
