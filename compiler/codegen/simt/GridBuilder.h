// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds what a thread of a grid does besides arithmetic: it finds its number,
// waits, and exchanges values with others. Blocks of one thread need none of
// it.
#pragma once

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/Builders.h"

namespace fsdpc::codegen::simt {

/// Builds into one gpu.func, at the caller's insertion point. It tracks how
/// much shared memory the kernel takes, so there is one instance per kernel.
/// `threads` is the size of a block.
class GridBuilder {
public:
  GridBuilder(mlir::OpBuilder &builder, mlir::gpu::GPUFuncOp function,
              int64_t threads)
      : builder(builder), loc(builder.getUnknownLoc()), function(function),
        threads(threads) {}

  /// The number of the thread in its block, and of the block in its grid, as
  /// i32.
  mlir::Value thread();
  mlir::Value block();

  /// Makes the threads of a team (up to a warp, whole warps, or the block) wait
  /// for each other. Each then sees what the others have stored.
  void synchronize(int64_t team);

  /// Returns a pointer to `bytes` bytes of shared memory, aligned to 16 bytes.
  mlir::Value share(int64_t bytes);
  /// Declares the shared memory. Call it once, after the kernel's body is
  /// built.
  void finish();

  using Combine =
      llvm::function_ref<mlir::Value(size_t, mlir::Value, mlir::Value)>;
  /// Combines a set of values across the threads of a team in a fixed order, so
  /// that every thread gets the same bits.
  /// `combine(i, a, b)` builds the combination of two instances of values[i].
  /// `shared` is shared memory of sharedFor() bytes; it may be reused after the
  /// team has synchronized.
  llvm::SmallVector<mlir::Value> reduce(mlir::ValueRange values, int64_t team,
                                        mlir::Value shared, Combine combine);
  /// Returns the bytes of shared memory that `reduce` needs for `count` values.
  int64_t sharedFor(size_t count, int64_t team) const;

  /// Combines the sums of threads that share columns. The block's threads form
  /// lines of `across` threads. put() stores the sums of each thread in shared
  /// memory (spaceFor() bytes) and synchronizes; take(), called by the threads
  /// of the first line with their `column`, then combines those of all lines in
  /// order.
  int64_t spaceFor(mlir::ValueRange sums) const;
  void put(mlir::Value shared, mlir::ValueRange sums);
  llvm::SmallVector<mlir::Value> take(mlir::Value shared, mlir::ValueRange sums,
                                      mlir::Value column, int64_t across,
                                      Combine combine);

private:
  /// Returns the address of value `i` of a thread. All slots have the size of
  /// the largest value.
  mlir::Value place(mlir::Value shared, mlir::ValueRange sums, size_t i,
                    mlir::Value thread);
  template <typename OpTy, typename... Args> mlir::Value make(Args &&...args) {
    return OpTy::create(builder, loc, std::forward<Args>(args)...);
  }
  mlir::Value shuffle(mlir::Value value, int64_t offset, int64_t width);
  /// Combines values across groups of `width` threads of a warp.
  llvm::SmallVector<mlir::Value> exchange(mlir::ValueRange values,
                                          int64_t width, Combine combine);

  mlir::OpBuilder &builder;
  mlir::Location loc;
  mlir::gpu::GPUFuncOp function;
  int64_t threads, sharedBytes = 0;
};

/// Returns the symbol of a kernel's shared memory.
std::string sharedName(llvm::StringRef kernel);

} // namespace fsdpc::codegen::simt
