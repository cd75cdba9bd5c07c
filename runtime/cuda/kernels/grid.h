// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shows the bodies of the runtime's own kernels the threads that run them. One
// body is compiled twice: by nvcc with 256 threads per block, and by the host's
// compiler. There the emulation runs one thread per block, and tests run a
// thread of the system per thread of the block. The result of a body does not
// depend on the number of blocks, and sums across threads are trees of fixed
// shape.
#pragma once

#include "runtime/numeric/bfloat16.h"

#include <cstdint>

namespace fsdpc::runtime {

constexpr int ownThreads = 256; ///< per block, on a GPU

/// One thread's place in the grid, and what its block shares.
struct Grid {
  int64_t block = 0, blocks = 1;
  int thread = 0, threads = 1; ///< a power of two
  double *shared = nullptr;    ///< one per thread of the block
  /// On the host with several threads: returns when all threads of the block
  /// have called it.
  void (*barrier)(void *) = nullptr;
  void *barrierState = nullptr;

  /// Bodies loop from first() by stride(), so any number of blocks covers the
  /// work.
  FSDPC_SHARED int64_t first() const { return block * threads + thread; }
  FSDPC_SHARED int64_t stride() const { return blocks * threads; }

  FSDPC_SHARED void synchronize() const {
#ifdef __CUDA_ARCH__
    __syncthreads();
#else
    if (threads > 1)
      barrier(barrierState);
#endif
  }

  /// Combines the values of the block's threads, and returns the result to
  /// each. With `stride`, a power of two, those of the threads that are equal
  /// modulo it. All threads of the block must call it. `combine` must be
  /// associative up to rounding; the tree is the same for every grid.
  template <typename T, typename Combine>
  FSDPC_SHARED T reduce(T value, Combine combine, int stride = 1) const {
    return reduceIn(threads, value, combine, stride);
  }

  /// The same in each team of `width` adjacent threads, a power of two.
  template <typename T, typename Combine>
  FSDPC_SHARED T reduceIn(int width, T value, Combine combine,
                          int stride = 1) const {
    if (width == stride)
      return value;
    int place = thread % width;
    shared[thread] = double(value); // exact
    for (int half = width / 2; half >= stride; half /= 2) {
      synchronize();
      if (place < half)
        shared[thread] =
            double(combine(T(shared[thread]), T(shared[thread + half])));
    }
    synchronize();
    // The barrier after it keeps the next reduction from overwriting the result
    // before all have read it.
    T result = T(shared[thread - place + place % stride]);
    synchronize();
    return result;
  }

  template <typename T> FSDPC_SHARED T sum(T value) const {
    return reduce(value, [](T a, T b) { return a + b; });
  }

  /// Returns the sum of the values of the block's threads before this one,
  /// whole numbers whose sums f64 holds. All threads of the block must call it.
  template <typename T> FSDPC_SHARED T sumBefore(T value) const {
    if (threads == 1)
      return 0;
    shared[thread] = double(value);
    for (int step = 1; step < threads; step *= 2) {
      synchronize();
      double other = thread >= step ? shared[thread - step] : 0;
      synchronize();
      shared[thread] += other;
    }
    return T(shared[thread]) - value;
  }
};

/// Four adjacent elements, for wide accesses: 16 bytes of f32, 8 of a 16-bit
/// type. Memory that is accessed through it must be aligned as it is.
template <typename T> struct alignas(4 * sizeof(T)) Four {
  T at[4];
};

} // namespace fsdpc::runtime
