// Compiles kernels in parallel. Neither an MLIRContext nor an LLVMContext may
// be shared by threads that change it, so kernels are printed in groups of a
// few and each group is parsed in contexts of its own. The groups do not depend
// on the number of threads, hence neither do the objects.
#include "compiler/codegen/KernelCompiler.h"

#include "compiler/codegen/kernels/KernelModule.h"
#include "compiler/dialects/nn/NNDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <atomic>
#include <thread>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

namespace {

// Small enough to occupy all cores on small models, large enough to make the
// context of a group (dialects, target machine) cheap.
constexpr size_t kKernelsPerObject = 6;

bool isKernel(func::FuncOp function) {
  return function->hasAttr(nn::NNDialect::kKernelAttr) &&
         !function.getBody().empty();
}

} // namespace

size_t fsdpc::codegen::countGroups(ModuleOp module) {
  size_t kernels = llvm::count_if(module.getOps<func::FuncOp>(), isKernel);
  return llvm::divideCeil(kernels, kKernelsPerObject);
}

LogicalResult fsdpc::codegen::compileGroups(
    ModuleOp module,
    llvm::function_ref<std::string(size_t, StringRef)> compile) {
  SmallVector<std::string> sources;
  size_t inGroup = 0;
  for (auto kernel : module.getOps<func::FuncOp>()) {
    if (!isKernel(kernel))
      continue;
    if (inGroup++ % kKernelsPerObject == 0)
      sources.emplace_back();
    llvm::raw_string_ostream stream(sources.back());
    kernel.print(stream);
    stream << "\n";
  }

  std::vector<std::string> errors(sources.size());
  std::atomic<size_t> next = 0;
  auto work = [&] {
    for (size_t i = next++; i < sources.size(); i = next++)
      errors[i] = compile(i, sources[i]);
  };
  size_t count = std::min<size_t>(
      sources.size(), std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  for (size_t i = 1; i < count; ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &error : errors)
    if (!error.empty())
      return module.emitError("cannot compile kernels: ") << error;
  return success();
}

FailureOr<std::vector<std::string>>
fsdpc::codegen::compileKernels(ModuleOp module, CompileObject compile) {
  std::vector<std::string> objects(countGroups(module));
  auto compileGroup = [&](size_t group, StringRef source) {
    std::string error;
    compile(source, objects[group], error);
    return error;
  };
  if (failed(compileGroups(module, compileGroup)))
    return failure();
  return objects;
}

FailureOr<std::vector<std::string>>
fsdpc::codegen::compileKernels(ModuleOp module, const TargetOptions &options) {
  return compileKernels(
      module, [&](StringRef source, std::string &object, std::string &error) {
        kernels::compileModule(source, options, object, error);
      });
}
