// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles kernels side by side: nn ops → loops (scf, arith, vector, LLVM's
// loads and stores) → LLVM dialect → LLVM IR → objects. Kernels form groups of
// a few, each a module of its own within one, so that a nested pass manager
// lowers them on MLIR's threads. The groups do not depend on the number of
// threads, hence neither do the objects. The steps up to the LLVM dialect are
// passes, so that fsdpc-opt can run each.
#include "compiler/codegen/KernelCompiler.h"

#include "compiler/codegen/Passes.h"
#include "compiler/codegen/kernels/LowerToLLVM.h"
#include "compiler/dialects/nn/NNDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Threading.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

namespace {

// Small enough to occupy all cores on small models, large enough to make an
// object's costs (target machine, LLVM's passes) cheap.
constexpr size_t kKernelsPerObject = 6;

bool isKernel(func::FuncOp function) {
  return function->hasAttr(nn::NNDialect::kKernelAttr) &&
         !function.getBody().empty();
}

// Returns a module of modules, each with a few kernels. They are copies, since
// compiling consumes the bodies, while the program's emitter still reads the
// attributes of the originals.
OwningOpRef<ModuleOp> copyToGroups(ModuleOp module) {
  OwningOpRef<ModuleOp> groups = ModuleOp::create(module.getLoc());
  auto builder = OpBuilder::atBlockEnd(groups->getBody());
  ModuleOp group;
  size_t count = 0;
  for (auto kernel : module.getOps<func::FuncOp>()) {
    if (!isKernel(kernel))
      continue;
    if (count++ % kKernelsPerObject == 0)
      group = ModuleOp::create(builder, module.getLoc());
    group.push_back(kernel.clone());
  }
  return groups;
}

} // namespace

// Must agree with copyToGroups, since callers size their results by it.
size_t fsdpc::codegen::countGroups(ModuleOp module) {
  size_t kernels = llvm::count_if(module.getOps<func::FuncOp>(), isKernel);
  return llvm::divideCeil(kernels, kKernelsPerObject);
}

LogicalResult fsdpc::codegen::compileGroups(ModuleOp module, AddPasses lower,
                                            TranslateGroup translate) {
  OwningOpRef<ModuleOp> groups = copyToGroups(module);
  PassManager manager(module.getContext());
  lower(manager.nest<ModuleOp>());
  if (failed(manager.run(*groups)))
    return failure();
  // The passes above run on MLIR's threads by themselves. Translation is no
  // pass, hence the loop.
  auto modules = llvm::to_vector(groups->getOps<ModuleOp>());
  // A group's error is emitted by its own thread; any of them fails the
  // compile.
  return failableParallelForEachN(
      module.getContext(), 0, modules.size(),
      [&](size_t group) -> LogicalResult {
        std::string error = translate(group, modules[group]);
        if (!error.empty())
          return modules[group].emitError("cannot compile kernels: ") << error;
        return success();
      });
}

FailureOr<std::vector<std::string>>
fsdpc::codegen::compileKernels(ModuleOp module, const TargetOptions &options,
                               AddPasses emit) {
  // Must happen before threads run: a registry cannot be extended in parallel.
  DialectRegistry registry;
  kernels::registerTranslations(registry);
  module.getContext()->appendDialectRegistry(registry);
  std::vector<std::string> objects(countGroups(module));
  auto lower = [&](OpPassManager &manager) {
    emit(manager);
    manager.addPass(createExpandMath());
    manager.addPass(createLowerKernels());
  };
  auto translate = [&](size_t group, ModuleOp kernels) {
    return kernels::emitObject(kernels, options, objects[group]);
  };
  if (failed(compileGroups(module, lower, translate)))
    return failure();
  return objects;
}

FailureOr<std::vector<std::string>>
fsdpc::codegen::compileKernels(ModuleOp module, const TargetOptions &options) {
  // The planner knows nothing of the processor. How many lanes a vector has is
  // decided here.
  EmitKernelsOptions target;
  target.lanes = options.hasAvx512() ? 16 : 8;
  target.roundsBf16 = options.hasBf16();
  return compileKernels(module, options, [&](OpPassManager &manager) {
    manager.addPass(createEmitKernels(target));
  });
}
