// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A barrier for threads or processes, in memory that they share. It sleeps in
// the kernel (a futex on the generation) after at most 20 µs of polling.
// MPI_Barrier would poll all the time, on cores that other ranks compute on.
#pragma once

#include <atomic>
#include <cstdint>

namespace fsdpc::runtime {

/// Zeroed memory is a valid barrier that nobody has reached.
class FutexBarrier {
public:
  /// Blocks until `participants` callers have arrived. Then it can be used
  /// again.
  void wait(int participants);

private:
  std::atomic<uint32_t> arrived{0}, generation{0}, sleepers{0};
};

} // namespace fsdpc::runtime
