// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fuzzes optimizers and hooks in MLIR (--optimizer=FILE.mlir, --reduce-hook):
// a text is refused with an error, or it is a pointwise program.
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "passes/shard/HookOps.h"
#include "passes/shard/optimizers/UserProgram.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/packaged_llvm.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"

#include <memory>

using namespace mlir;
using namespace fsdpc;

// A context that many inputs share; see dump.cpp. pipeline::registerDialects
// would link all passes.
static MLIRContext &sharedContext() {
  static DialectRegistry registry;
  static std::unique_ptr<MLIRContext> context;
  static unsigned uses = 0;
  if (uses == 0)
    registry.insert<arith::ArithDialect, func::FuncDialect, math::MathDialect,
                    nn::NNDialect, fsdp::FSDPDialect>();
  if (uses++ % 512 == 0)
    context = std::make_unique<MLIRContext>(registry,
                                            MLIRContext::Threading::DISABLED);
  return *context;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  MLIRContext &context = sharedContext();
  int errors = 0;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    errors += diagnostic.getSeverity() == DiagnosticSeverity::Error;
    return success();
  });
  std::string text(data, data + size);
  fsdp::OptimizerChoice choice("file.mlir", text);
  auto program = passes::parseUserProgram(choice, &context);
  fuzz::demand(!program == (errors > 0), "an optimizer is refused with errors");
  if (program)
    passes::stateNames(program);
  errors = 0;
  fsdp::ReduceHook hook;
  hook.kind = fsdp::ReduceHook::Kind::Program;
  hook.file = "file.mlir";
  hook.function = "hook";
  hook.text = text;
  auto module = passes::parseHookProgram(hook, &context);
  fuzz::demand(!module == (errors > 0), "a hook is refused with errors");
  if (module)
    fuzz::demand(bool(passes::functionOf(hook, *module)), "a hook is there");
  return 0;
}
