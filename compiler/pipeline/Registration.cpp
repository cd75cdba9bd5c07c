// Every dialect and pass that the tools know.
#include "compiler/pipeline/Registration.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/rt/RTDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Transforms/Passes.h"
#include "passes/grad/Passes.h"

void fsdpc::registerDialects(mlir::DialectRegistry &registry) {
  registry.insert<mlir::arith::ArithDialect, mlir::func::FuncDialect,
                  mlir::math::MathDialect, nn::NNDialect, fsdp::FSDPDialect,
                  rt::RTDialect>();
}

void fsdpc::registerPasses() {
  mlir::registerCanonicalizer();
  mlir::registerCSE();
  registergradPasses();
}
