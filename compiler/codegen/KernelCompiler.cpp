// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles kernels side by side: nn ops → loops (scf, arith, vector, LLVM's
// loads and stores) → LLVM dialect → LLVM IR → objects. Kernels form groups of
// a few, each a module of its own within one, so that a nested pass manager
// lowers them on MLIR's threads. The kernels alone decide where a group ends:
// where others are added or missing, most groups stay what they are, and the
// cache has them. Neither threads nor the cache change an object. The steps up
// to the LLVM dialect are passes, so that fsdpc-opt can run each.
#include "compiler/codegen/KernelCompiler.h"

#include "compiler/codegen/Passes.h"
#include "compiler/codegen/kernels/LowerToLLVM.h"
#include "compiler/dialects/nn/NNDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Threading.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

namespace {

// Kernels of a group, on average and at most. Few enough to occupy all cores on
// small models, enough to make an object's costs (target machine, LLVM's
// passes) cheap.
constexpr size_t kKernelsPerGroup = 6, kMostKernelsPerGroup = 12;

bool isKernel(func::FuncOp function) {
  return function->hasAttr(nn::NNDialect::kKernelAttr) &&
         !function.getBody().empty();
}

// Returns all that decides a kernel's code: not the names of its nodes.
std::string textOf(func::FuncOp kernel) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  kernel.print(stream, OpPrintingFlags().printGenericOpForm().useLocalScope());
  return text;
}

bool endsGroup(StringRef text, size_t count) {
  return count == kMostKernelsPerGroup ||
         llvm::xxh3_64bits(text) % kKernelsPerGroup == 0;
}

// Kernels that are compiled together, and their texts.
struct Group {
  ModuleOp module;
  std::vector<std::string> texts;
};

// Adds modules, each with a few kernels, to `all`. They are copies, since
// compiling consumes the bodies, while the program's emitter still reads the
// attributes of the originals.
std::vector<Group> copyToGroups(ModuleOp module, ModuleOp all) {
  auto builder = OpBuilder::atBlockEnd(all.getBody());
  std::vector<Group> groups;
  bool ended = true;
  for (auto kernel : module.getOps<func::FuncOp>()) {
    if (!isKernel(kernel))
      continue;
    if (ended)
      groups.push_back({ModuleOp::create(builder, module.getLoc()), {}});
    Group &group = groups.back();
    group.module.push_back(kernel.clone());
    group.texts.push_back(textOf(kernel));
    ended = endsGroup(group.texts.back(), group.texts.size());
  }
  return groups;
}

} // namespace

FailureOr<std::vector<std::string>>
fsdpc::codegen::compileGroups(ModuleOp module, StringRef recipe,
                              AddPasses lower, TranslateGroup translate,
                              const KernelHelp &help) {
  help.beginPart("kernel loops");
  OwningOpRef<ModuleOp> all = ModuleOp::create(module.getLoc());
  std::vector<Group> groups = copyToGroups(module, *all);
  std::vector<std::string> code(groups.size()), keys(groups.size());
  std::vector<size_t> missing;
  for (auto [index, group] : llvm::enumerate(groups)) {
    std::optional<std::string> found;
    if (help.cache) {
      keys[index] = help.cache->keyOf(recipe, group.texts);
      found = help.cache->find(keys[index]);
    }
    if (found) {
      code[index] = std::move(*found);
      group.module.erase();
    } else {
      missing.push_back(index);
    }
  }
  PassManager manager(module.getContext());
  lower(manager.nest<ModuleOp>());
  if (failed(manager.run(*all)))
    return failure();
  help.beginPart("objects");
  // The passes above run on MLIR's threads by themselves. Translation is no
  // pass, hence the loop. A group's error is emitted by its own thread; any of
  // them fails the compile.
  LogicalResult translated = failableParallelForEach(
      module.getContext(), missing, [&](size_t index) -> LogicalResult {
        ModuleOp kernels = groups[index].module;
        std::string error = translate(kernels, code[index]);
        if (!error.empty())
          return kernels.emitError("cannot compile kernels: ") << error;
        if (help.cache)
          help.cache->store(keys[index], code[index]);
        return success();
      });
  if (failed(translated))
    return failure();
  return code;
}

FailureOr<std::vector<std::string>>
fsdpc::codegen::compileKernels(ModuleOp module, const TargetOptions &options,
                               StringRef recipe, AddPasses emit,
                               const KernelHelp &help) {
  // Must happen before threads run: a registry cannot be extended in parallel.
  DialectRegistry registry;
  kernels::registerTranslations(registry);
  module.getContext()->appendDialectRegistry(registry);
  auto lower = [&](OpPassManager &manager) {
    emit(manager);
    manager.addPass(createExpandMath());
    manager.addPass(createLowerKernels());
  };
  auto translate = [&](ModuleOp kernels, std::string &object) {
    return kernels::emitObject(kernels, options, object);
  };
  std::string whole = recipe.str() + " " + options.cpu + " " + options.tuneFor +
                      " " + llvm::join(options.features, " ");
  return compileGroups(module, whole, lower, translate, help);
}

FailureOr<std::vector<std::string>>
fsdpc::codegen::compileKernels(ModuleOp module, const TargetOptions &options,
                               const KernelHelp &help) {
  // The planner knows nothing of the processor. How many lanes a vector has is
  // decided here.
  EmitKernelsOptions target;
  target.lanes = options.hasAvx512() ? 16 : 8;
  target.roundsBf16 = options.hasBf16();
  auto emit = [&](OpPassManager &manager) {
    manager.addPass(createEmitKernels(target));
  };
  return compileKernels(module, options, "host", emit, help);
}
