// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles kernels with the compiler's own code and loads the objects that a
// program would link with LLVM's JIT linker. Grids run with one thread of the
// system per thread of a block (block_threads.h).
#include "tests/compiler/codegen/kernels/kernel_harness.h"

#include "compiler/analysis/kernels/GridPlan.h"
#include "compiler/codegen/Passes.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "passes/kernels/Passes.h"
#include "runtime/numeric/float16.h"
#include "tests/compiler/codegen/kernels/block_threads.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ExecutionEngine/Orc/ExecutionUtils.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"

#include <chrono>
#include <cmath>
#include <cstring>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::testing;

namespace {

constexpr size_t kGuard = 256;
constexpr uint8_t kGuardByte = 0xA5;

template <typename T> T check(llvm::Expected<T> value) {
  if (!value)
    llvm::report_fatal_error(value.takeError());
  return std::move(*value);
}

void check(llvm::Error error) {
  if (error)
    llvm::report_fatal_error(std::move(error));
}

// The functions that grid kernels call.
llvm::orc::SymbolMap threadSymbols(llvm::orc::LLJIT &jit) {
  llvm::orc::SymbolMap symbols;
  auto add = [&](const char *name, auto *function) {
    symbols[jit.mangleAndIntern(name)] = {
        llvm::orc::ExecutorAddr::fromPtr(function),
        llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  };
  add("fsdpc_simt_thread", fsdpc_simt_thread);
  add("fsdpc_simt_barrier", fsdpc_simt_barrier);
  add("fsdpc_simt_warp_barrier", fsdpc_simt_warp_barrier);
  add("fsdpc_simt_team_barrier", fsdpc_simt_team_barrier);
  add("fsdpc_simt_shuffle", fsdpc_simt_shuffle);
  add("fsdpc_simt_shared", fsdpc_simt_shared);
  return symbols;
}

} // namespace

Buffer::Buffer(RankedTensorType type)
    : storage(type.getNumElements() * nn::elementBytes(type.getElementType()) +
                  2 * kGuard + 64,
              kGuardByte) {
  size = type.getNumElements() * nn::elementBytes(type.getElementType());
  start = kGuard;
  start += (64 - reinterpret_cast<uintptr_t>(storage.data() + start) % 64) % 64;
}

bool Buffer::guardsIntact() const {
  for (size_t i = 0; i < storage.size(); ++i)
    if ((i < start || i >= start + size) && storage[i] != kGuardByte)
      return false;
  return true;
}

bool Buffer::operator==(const Buffer &other) const {
  return size == other.size &&
         std::memcmp(storage.data() + start, other.storage.data() + other.start,
                     size) == 0;
}

void Buffer::fill(const nn::ReferenceTensor &tensor) {
  size_t width = nn::elementBytes(tensor.element);
  auto *out = static_cast<uint8_t *>(data());
  for (int64_t i = 0; i < tensor.size(); ++i) {
    uint64_t bits;
    if (tensor.element.isF64()) {
      std::memcpy(&bits, &tensor.floats[i], 8);
    } else if (tensor.isFloat()) {
      auto value = static_cast<float>(tensor.floats[i]);
      uint32_t word;
      std::memcpy(&word, &value, 4);
      bits = tensor.element.isBF16() ? word >> 16
             : tensor.element.isF16()
                 ? runtime::narrow<runtime::Float16>(value).bits
                 : word;
    } else {
      bits = static_cast<uint64_t>(tensor.ints[i]);
    }
    std::memcpy(out + i * width, &bits, width);
  }
}

nn::ReferenceTensor Buffer::read(RankedTensorType type) const {
  nn::ReferenceTensor tensor = nn::ReferenceTensor::zeros(type);
  size_t width = nn::elementBytes(tensor.element);
  const uint8_t *in = storage.data() + start;
  for (int64_t i = 0; i < tensor.size(); ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, in + i * width, width);
    if (tensor.element.isF64()) {
      std::memcpy(&tensor.floats[i], &bits, 8);
    } else if (tensor.isFloat()) {
      uint32_t word = tensor.element.isBF16() ? bits << 16 : bits;
      float value;
      std::memcpy(&value, &word, 4);
      if (tensor.element.isF16())
        value = runtime::widen(runtime::Float16{uint16_t(bits)});
      tensor.floats[i] = value;
    } else if (tensor.element.isInteger(32)) {
      tensor.ints[i] = static_cast<int32_t>(bits);
    } else {
      tensor.ints[i] = static_cast<int64_t>(bits);
    }
  }
  return tensor;
}

void fsdpc::testing::prepareContext(MLIRContext &context) {
  context.loadDialect<arith::ArithDialect, func::FuncDialect, math::MathDialect,
                      nn::NNDialect>();
  context.allowUnregisteredDialects();
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
}

LogicalResult fsdpc::testing::planKernels(ModuleOp module, bool onGpu) {
  PassManager manager(module.getContext());
  manager.addPass(passes::createDecomposeKernels());
  if (failed(manager.run(module)))
    return failure();
  for (auto kernel : module.getOps<func::FuncOp>())
    if (analysis::hasPlan(kernel) &&
        failed(analysis::planKernel(kernel, /*keepsValues=*/!onGpu)))
      return failure();
  return success();
}

std::vector<std::string> LoadedKernels::compile(const TargetOptions &target) {
  if (!threads) {
    FailureOr<std::vector<std::string>> objects =
        compileKernels(*module, target);
    if (failed(objects))
      llvm::report_fatal_error("kernels do not compile");
    return *objects;
  }
  for (auto kernel : module->getOps<func::FuncOp>())
    // A test may bring a grid of its own.
    if (analysis::hasGrid(kernel) && !analysis::gridOf(kernel) &&
        failed(analysis::planGrid(kernel, threads)))
      llvm::report_fatal_error("kernels have no grid");
  EmitGridsOptions options;
  options.roundsBf16 = false;
  auto emit = [&](OpPassManager &manager) {
    manager.addPass(createEmitGrids(options));
    manager.addPass(createExpandMath());
    manager.addPass(createLowerGridsToHost());
  };
  FailureOr<std::vector<std::string>> objects =
      compileKernels(*module, target, "emulation", emit, {});
  if (failed(objects))
    llvm::report_fatal_error("grids do not compile");
  return *objects;
}

LoadedKernels::LoadedKernels(MLIRContext &context, const std::string &text,
                             const std::string &cpu, int64_t threads)
    : threads(threads) {
  source = parseSourceString<ModuleOp>(text, &context);
  if (!source)
    llvm::report_fatal_error("kernels do not parse");
  module = source->clone();
  FailureOr<TargetOptions> target = resolveTarget(module->getLoc(), cpu);
  if (failed(target) || failed(planKernels(*module, /*onGpu=*/threads)))
    llvm::report_fatal_error("kernels cannot be planned");
  auto begin = std::chrono::steady_clock::now();
  std::vector<std::string> objects = compile(*target);
  compileMs = std::chrono::duration<double, std::milli>(
                  std::chrono::steady_clock::now() - begin)
                  .count();
  jit = check(llvm::orc::LLJITBuilder().create());
  auto process =
      check(llvm::orc::DynamicLibrarySearchGenerator::GetForCurrentProcess(
          jit->getDataLayout().getGlobalPrefix()));
  jit->getMainJITDylib().addGenerator(std::move(process));
  check(jit->getMainJITDylib().define(
      llvm::orc::absoluteSymbols(threadSymbols(*jit))));
  for (const std::string &object : objects) {
    objectBytes += object.size();
    check(jit->addObjectFile(llvm::MemoryBuffer::getMemBufferCopy(object)));
  }
}

LoadedKernels::~LoadedKernels() = default;

std::vector<func::FuncOp> LoadedKernels::kernels() {
  std::vector<func::FuncOp> result;
  for (auto kernel : module->getOps<func::FuncOp>())
    if (kernel->hasAttr(nn::NNDialect::kKernelAttr))
      result.push_back(kernel);
  return result;
}

func::FuncOp LoadedKernels::original(llvm::StringRef name) {
  return source->lookupSymbol<func::FuncOp>(name);
}

int64_t LoadedKernels::extent(func::FuncOp kernel) {
  if (!threads)
    return analysis::planOf(kernel).getExtent();
  return analysis::gridOf(kernel).getBlocks();
}

std::vector<int64_t> LoadedKernels::pieces(int64_t extent) {
  if (threads <= 1)
    return {1, 3};
  return {extent / 2 + 1}; // each piece starts threads
}

KernelFunction LoadedKernels::find(llvm::StringRef name) {
  return check(jit->lookup(name)).toPtr<KernelFunction>();
}

void LoadedKernels::run(llvm::StringRef name, int64_t begin, int64_t end,
                        void *const *buffers) {
  KernelFunction function = find(name);
  if (threads <= 1)
    return function(begin, end, buffers);
  // The plan may ask for more threads.
  auto kernel = module->lookupSymbol<func::FuncOp>(name);
  runBlocks(analysis::gridOf(kernel).getThreads(), begin, end,
            [&](int64_t block) { function(block, block + 1, buffers); });
}

nn::ReferenceTensor fsdpc::testing::randomTensor(RankedTensorType type,
                                                 int64_t bound,
                                                 uint64_t &state) {
  auto next = [&] { // splitmix64
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  };
  nn::ReferenceTensor tensor = nn::ReferenceTensor::zeros(type);
  for (double &value : tensor.floats)
    value = 6.0 * (next() >> 11) * 0x1p-53 - 3;
  for (int64_t &value : tensor.ints)
    value = bound > 0 ? static_cast<int64_t>(next() % bound)
                      : static_cast<int64_t>(next());
  tensor.round();
  return tensor;
}

namespace {

// Describes the first difference between a result and the expected values, or
// returns an empty string. `addsBf16`: the result is a sum of numbers of which
// some may be rounded the other way.
std::string compare(const nn::ReferenceTensor &actual,
                    const nn::ReferenceTensor &expected, bool addsBf16) {
  double relative = expected.element.isF64()    ? 1e-11
                    : expected.element.isBF16() ? 1.0 / 100
                    : expected.element.isF16()  ? 1.0 / 500
                    : addsBf16                  ? 1e-3
                                                : 1e-5;
  double largest = 0;
  for (double value : expected.floats)
    if (std::isfinite(value))
      largest = std::max(largest, std::abs(value));
  for (int64_t i = 0; i < expected.size(); ++i) {
    double a, e;
    if (expected.isFloat()) {
      a = actual.floats[i];
      e = expected.floats[i];
    } else {
      a = actual.ints[i];
      e = expected.ints[i];
    }
    bool same = a == e || (std::isnan(a) && std::isnan(e));
    if (expected.isFloat() && std::isfinite(e))
      same =
          std::abs(a - e) <= relative * (std::abs(e) + 0.1 * largest) + 1e-30;
    if (!same)
      return llvm::formatv("element {0} is {1} instead of {2}", i, a, e);
  }
  return "";
}

} // namespace

std::string fsdpc::testing::checkKernel(LoadedKernels &loaded,
                                        func::FuncOp kernel, int64_t bound,
                                        bool positive) {
  func::FuncOp original = loaded.original(kernel.getSymName());
  std::string shown;
  llvm::raw_string_ostream(shown) << original;
  auto wrong = [&](const std::string &what) { return what + " in\n" + shown; };

  uint64_t state = 1;
  std::vector<nn::ReferenceTensor> inputs;
  std::vector<Buffer> buffers;
  for (auto [i, type] : llvm::enumerate(kernel.getArgumentTypes())) {
    auto tensor = cast<RankedTensorType>(type);
    auto own = original.getArgAttrOfType<IntegerAttr>(i, "test.bound");
    auto low = original.getArgAttrOfType<IntegerAttr>(i, "test.low");
    inputs.push_back(randomTensor(tensor, own ? own.getInt() : bound, state));
    if (positive || original.getArgAttr(i, "test.positive"))
      for (double &value : inputs.back().floats)
        value = std::abs(value) + 0.1;
    for (int64_t &value : inputs.back().ints)
      value += low ? low.getInt() : 0;
    inputs.back().round();
    buffers.emplace_back(tensor).fill(inputs.back());
  }
  auto expected = nn::evaluateFunction(
      cast<FunctionOpInterface>(original.getOperation()), inputs);
  if (failed(expected))
    return wrong("the reference fails");

  int64_t extent = loaded.extent(kernel);
  bool intact = true;
  auto run = [&](int64_t piece) {
    std::vector<Buffer> outputs;
    for (Type type : kernel.getResultTypes())
      outputs.emplace_back(cast<RankedTensorType>(type));
    std::vector<void *> pointers;
    for (Buffer &buffer : buffers)
      pointers.push_back(buffer.data());
    for (Buffer &buffer : outputs)
      pointers.push_back(buffer.data());
    // Last piece first, since pieces may run in any order.
    for (int64_t begin = (extent - 1) / piece * piece; begin >= 0;
         begin -= piece)
      loaded.run(kernel.getSymName(), begin, std::min(extent, begin + piece),
                 pointers.data());
    for (Buffer &buffer : outputs)
      intact &= buffer.guardsIntact();
    return outputs;
  };
  std::vector<Buffer> whole = run(extent);
  for (int64_t piece : loaded.pieces(extent))
    if (!(run(piece) == whole))
      return wrong("pieces of " + std::to_string(piece) + " change bits");
  if (!intact)
    return wrong("the end of a result is overrun");
  bool addsBf16 = original->hasAttr("test.adds_bf16");
  for (auto [i, type] : llvm::enumerate(kernel.getResultTypes())) {
    auto actual = whole[i].read(cast<RankedTensorType>(type));
    std::string difference = compare(actual, (*expected)[i], addsBf16);
    if (!difference.empty())
      return wrong("result " + std::to_string(i) + ", " + difference);
  }
  return "";
}
