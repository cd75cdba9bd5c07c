// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles kernels, loads them into this process, and compares them with the
// reference interpreter: as host loops, or as grids of threads.
#pragma once

#include "compiler/codegen/KernelCompiler.h"
#include "compiler/dialects/nn/reference/Reference.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <memory>
#include <string>
#include <vector>

namespace llvm::orc {
class LLJIT;
}

namespace fsdpc::testing {

/// A buffer like the runtime's, aligned to 64 bytes, with guards at both ends
/// that show when a kernel writes past it.
class Buffer {
public:
  explicit Buffer(mlir::RankedTensorType type);
  void *data() { return storage.data() + start; }
  size_t bytes() const { return size; }
  /// False if somebody wrote outside of the tensor.
  bool guardsIntact() const;
  void fill(const nn::ReferenceTensor &tensor);
  nn::ReferenceTensor read(mlir::RankedTensorType type) const;
  bool operator==(const Buffer &other) const;

private:
  std::vector<uint8_t> storage;
  size_t start = 0, size = 0;
};

using KernelFunction = void (*)(int64_t, int64_t, void *const *);

class LoadedKernels {
public:
  /// Compiles and loads kernels. Exits with a message if the text is wrong.
  /// `threads` is the number per block of a grid, or 0 for loops.
  LoadedKernels(mlir::MLIRContext &context, const std::string &text,
                const std::string &cpu = "native", int64_t threads = 0);
  ~LoadedKernels();

  std::vector<mlir::func::FuncOp> kernels();
  /// Returns a kernel as written, before composites were decomposed.
  mlir::func::FuncOp original(llvm::StringRef name);
  /// The kernel's outer range, or its number of blocks.
  int64_t extent(mlir::func::FuncOp kernel);
  /// Sizes of pieces of the range that are worth testing.
  std::vector<int64_t> pieces(int64_t extent);
  KernelFunction find(llvm::StringRef name);
  /// Calls the kernel on [begin, end), with as many threads as a block has.
  void run(llvm::StringRef name, int64_t begin, int64_t end,
           void *const *buffers);

  double compileMs = 0;
  size_t objectBytes = 0;

private:
  std::vector<std::string> compile(const codegen::TargetOptions &target);

  int64_t threads;
  mlir::OwningOpRef<mlir::ModuleOp> source, module;
  std::unique_ptr<llvm::orc::LLJIT> jit;
};

/// Registers the dialects that kernels use.
void prepareContext(mlir::MLIRContext &context);

/// Decomposes and plans the kernels, as the passes of the pipeline do.
llvm::LogicalResult planKernels(mlir::ModuleOp module, bool onGpu);

/// Reproducible inputs: floats in [-3, 3], and integers in [0, bound) if the
/// argument has `test.bound`, else any integers.
nn::ReferenceTensor randomTensor(mlir::RankedTensorType type, int64_t bound,
                                 uint64_t &state);

/// Runs a kernel on random operands, with its range in one piece and in
/// several. Returns what is wrong, or an empty string: bits that depend on the
/// pieces, a write past a result, or a difference from the reference
/// interpreter.
///
/// Operands with `test.bound` are integers below it, from `test.low` on; those
/// with `test.positive` are positive floats. `bound` is for operands without
/// either. A kernel with `test.adds_bf16` sums values that it has rounded.
std::string checkKernel(LoadedKernels &loaded, mlir::func::FuncOp kernel,
                        int64_t bound = 0, bool positive = false);

} // namespace fsdpc::testing
