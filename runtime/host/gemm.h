// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A single-threaded matrix product of a fixed shape. It is a oneDNN primitive
// if oneDNN has one for the types. Otherwise (f16, bf16 on processors without
// it, mixed types) the operands are widened to f32 in scratch memory.
//
// Every product of the host device is made of these, those of convolution and
// attention too. oneDNN's own threads would split K, and then the bits would
// depend on their number.
#pragma once

#include "runtime/abi/host_scratch.h"
#include "runtime/support/status.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

namespace fsdpc::runtime {

/// Rounds f32 sums to the type.
void roundFloats(const float *from, int64_t count, ElementType type, void *to);

class Gemm {
public:
  /// Makes a product that `threads` threads may run. It takes oneDNN's first
  /// implementation that needs at most `mostScratch` bytes. Fails if oneDNN has
  /// none for this shape.
  static Result<std::shared_ptr<Gemm>> make(const GemmShape &shape, int threads,
                                            size_t mostScratch = SIZE_MAX);
  virtual ~Gemm() = default;
  /// Bytes of scratch, aligned to 64, that each concurrent call needs.
  virtual size_t scratchBytes() const = 0;
  /// Returns true if an implementation before the one taken needs more scratch.
  virtual bool avoidsScratch() const = 0;
  /// Creates the primitive. Must be called before `run`.
  virtual void prepare() = 0;
  /// Computes the product. Calls with different `thread` may run concurrently.
  /// Operands must not overlap; their strides are those of the shape.
  virtual void run(int thread, const void *a, const void *b, void *c,
                   void *scratch) = 0;
};

/// Shares products of equal shape, since making one takes oneDNN milliseconds.
/// Each keeps to the scratch that the plan of a program for `isa` counts
/// (host_scratch.h). Used while plans are made, by one thread.
class GemmCache {
public:
  explicit GemmCache(int threads, HostIsa isa = HostIsa::avx2)
      : threads(threads), isa(isa) {}
  Result<std::shared_ptr<Gemm>> get(const GemmShape &shape);
  /// Returns the number of products of which avoidsScratch() is true.
  int64_t avoidances() const;

private:
  int threads;
  HostIsa isa;
  std::map<GemmShape, std::shared_ptr<Gemm>> gemms;
};

} // namespace fsdpc::runtime
