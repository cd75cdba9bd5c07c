// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// kernel_bench FILE.mlir [CPU]
//
// Times each kernel of a file alone on one thread, compares it with a plain
// vectorised copy of the same number of bytes, and prints ms, GB/s and the
// share of the copy's speed. The file is a dump of phase `kernels`, whose
// launches give each kernel's calls per step and its bytes, or has bare kernels
// (typical_kernels.mlir), whose operands and results are all counted.
//
// In a training step operands are in memory, not in a cache. So kernel and copy
// cycle through copies of their buffers that together exceed the last-level
// cache.
#include "tests/compiler/codegen/kernels/kernel_harness.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "mlir/Parser/Parser.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cstring>
#include <ctime>

using namespace mlir;
using namespace fsdpc;

using namespace fsdpc::testing;

namespace {

constexpr size_t kBeyondCaches = 192 << 20;
constexpr size_t kPage = 4096;

double now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

using Copied = float __attribute__((vector_size(64), aligned(4)));

__attribute__((target_clones("avx512f", "avx2", "default"))) void
copyLoop(Copied *to, const Copied *from, size_t count) {
  for (size_t i = 0; i < count; ++i)
    to[i] = from[i];
}

struct Measured {
  std::string name;
  int64_t calls = 0, bytes = 0;
  double ms = 0, copyMs = 0;
};

// Returns the fastest of several rounds of a and of b, run in turn: other
// processes that use the memory then disturb both.
template <typename A, typename B>
std::pair<double, double> fastest(int64_t calls, A a, B b) {
  std::pair<double, double> best = {1e9, 1e9};
  double total = 0;
  for (int round = 0; round < 40 && (round < 4 || total < 300); ++round) {
    double begin = now();
    for (int64_t call = 0; call < calls; ++call)
      a(call);
    double middle = now();
    for (int64_t call = 0; call < calls; ++call)
      b(call);
    double end = now();
    best.first = std::min(best.first, (middle - begin) / calls);
    best.second = std::min(best.second, (end - middle) / calls);
    total += end - begin;
  }
  return best;
}

// Returns the bound of the integers that a kernel reads: the smallest table.
int64_t idBound(func::FuncOp kernel) {
  int64_t bound = std::numeric_limits<int32_t>::max();
  auto limit = [&](Value value, int64_t axis) {
    auto shape = cast<RankedTensorType>(value.getType()).getShape();
    bound = std::min(bound, shape[axis < 0 ? shape.size() + axis : axis]);
  };
  kernel.walk([&](Operation *op) {
    if (auto embedding = dyn_cast<nn::EmbeddingOp>(op))
      limit(embedding.getTable(), 0);
    if (auto grad = dyn_cast<nn::EmbeddingGradOp>(op))
      limit(grad.getResult(), 0);
    if (auto take = dyn_cast<nn::TakeAlongAxisOp>(op))
      limit(take.getInput(), -1);
    if (auto grad = dyn_cast<nn::CrossEntropyGradOp>(op))
      limit(grad.getResult(), -1);
  });
  return bound;
}

class Bench {
public:
  explicit Bench(LoadedKernels &loaded)
      : loaded(loaded), from(kBeyondCaches, 1), to(kBeyondCaches, 1) {}

  void measure(func::FuncOp kernel, Measured &result) {
    auto function = loaded.find(kernel.getSymName());
    bool optimizer = kernel->hasAttr("nn.optimizer");
    SmallVector<RankedTensorType> inputs, outputs;
    int64_t extent = optimizer ? kOptimized : loaded.extent(kernel);
    if (optimizer)
      optimizerBuffers(kernel, inputs, result);
    else
      for (auto [types, list] : {std::pair(kernel.getArgumentTypes(), &inputs),
                                 std::pair(kernel.getResultTypes(), &outputs)})
        for (Type type : types)
          list->push_back(cast<RankedTensorType>(type));

    uint64_t state = 1;
    int64_t bound = idBound(loaded.original(kernel.getSymName()));
    std::vector<Buffer> first;
    size_t size = 0;
    for (RankedTensorType type : inputs) {
      first.emplace_back(type).fill(randomTensor(type, bound, state));
      size += first.back().bytes();
    }
    for (RankedTensorType type : outputs) {
      first.emplace_back(type);
      std::memset(first.back().data(), 0, first.back().bytes());
      size += first.back().bytes();
    }
    if (!result.bytes)
      result.bytes = size;
    int64_t sets = std::clamp<int64_t>(kBeyondCaches / size + 1, 1, 256);
    // Buffers begin at pages, like the tensors of an arena. At other distances
    // a load may have to wait for an earlier store to the same offset of
    // another page.
    size_t setBytes = 0;
    for (Buffer &buffer : first)
      setBytes += llvm::alignTo<kPage>(buffer.bytes());
    std::vector<char> memory(sets * setBytes + kPage);
    char *place = reinterpret_cast<char *>(
        llvm::alignTo<kPage>(reinterpret_cast<uintptr_t>(memory.data())));
    std::vector<std::vector<void *>> pointers(sets);
    for (int64_t set = 0; set < sets; ++set)
      for (Buffer &buffer : first) {
        pointers[set].push_back(
            std::memcpy(place, buffer.data(), buffer.bytes()));
        place += llvm::alignTo<kPage>(buffer.bytes());
      }

    size_t half = std::min<size_t>(result.bytes / 2, kBeyondCaches);
    size_t places = kBeyondCaches / std::max<size_t>(half, 1);
    std::tie(result.ms, result.copyMs) = fastest(
        sets, [&](int64_t set) { function(0, extent, pointers[set].data()); },
        [&](int64_t set) {
          size_t begin = set % places * half / 64 * 64;
          copyLoop(reinterpret_cast<Copied *>(&to[begin]),
                   reinterpret_cast<const Copied *>(&from[begin]), half / 64);
        });
    result.copyMs *= result.bytes / 2.0 / half;
  }

private:
  static constexpr int64_t kOptimized = 1 << 22;

  // Master, gradient, states, the bf16 copy, the gradient's scale and the
  // rates, all as f32 or longer than needed.
  void optimizerBuffers(func::FuncOp kernel,
                        SmallVectorImpl<RankedTensorType> &buffers,
                        Measured &result) {
    Builder builder(kernel.getContext());
    int64_t states = kernel.getNumArguments() - 5;
    auto compute = kernel->getAttrOfType<TypeAttr>("nn.compute");
    bool copies = compute && compute.getValue().isBF16();
    for (int64_t i = 0; i < 2 + states + copies; ++i)
      buffers.push_back(RankedTensorType::get(
          kOptimized, i < 2 + states ? Type(builder.getF32Type())
                                     : Type(builder.getBF16Type())));
    buffers.push_back(RankedTensorType::get(1, builder.getF32Type()));
    buffers.push_back(RankedTensorType::get(3, builder.getF64Type()));
    // Everything except the gradient is read and written.
    result.bytes = kOptimized * (8 * (1 + states) + 4 + 2 * copies);
  }

  LoadedKernels &loaded;
  std::vector<char> from, to;
};

} // namespace

int main(int argc, char **argv) {
  if (argc < 2) {
    llvm::errs() << "usage: kernel_bench FILE.mlir [CPU]\n";
    return 2;
  }
  MLIRContext context;
  prepareContext(context);
  context.loadDialect<fsdp::FSDPDialect>();
  OwningOpRef<ModuleOp> file = parseSourceFile<ModuleOp>(argv[1], &context);
  if (!file)
    return 1;
  std::string text;
  llvm::raw_string_ostream stream(text);
  for (auto kernel : file->getOps<func::FuncOp>())
    if (kernel->hasAttr(nn::NNDialect::kKernelAttr))
      stream << kernel << "\n";
  llvm::StringMap<Measured> measured;
  file->walk([&](nn::LaunchOp launch) {
    Measured &of = measured[launch.getKernel()];
    ++of.calls;
    if (auto bytes =
            launch->getAttrOfType<IntegerAttr>(fsdp::FSDPDialect::kBytesAttr))
      of.bytes = bytes.getInt();
  });

  LoadedKernels loaded(context, text, argc > 2 ? argv[2] : "native");
  std::printf("%zu kernels compiled in %.0f ms\n", loaded.kernels().size(),
              loaded.compileMs);
  Bench bench(loaded);
  std::vector<Measured> rows;
  for (func::FuncOp kernel : loaded.kernels()) {
    Measured &row = rows.emplace_back(measured[kernel.getSymName()]);
    row.name = kernel.getSymName().str();
    row.calls = std::max<int64_t>(row.calls, 1);
    bench.measure(kernel, row);
  }
  llvm::sort(rows, [](const Measured &a, const Measured &b) {
    return a.calls * a.ms > b.calls * b.ms;
  });
  std::printf("%-36s %5s %9s %8s %6s %6s %9s\n", "kernel", "calls", "MB", "ms",
              "GB/s", "share", "ms a step");
  double all = 0, copies = 0;
  for (const Measured &row : rows) {
    std::printf("%-36s %5lld %9.2f %8.3f %6.1f %5.0f%% %9.2f\n",
                row.name.c_str(), static_cast<long long>(row.calls),
                row.bytes / 1e6, row.ms, row.bytes / row.ms / 1e6,
                100 * row.copyMs / row.ms, row.calls * row.ms);
    all += row.calls * row.ms;
    copies += row.calls * row.copyMs;
  }
  std::printf("%-36s %35.0f%% %9.2f\n", "all", 100 * copies / all, all);
}
