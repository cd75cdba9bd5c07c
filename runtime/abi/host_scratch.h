// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes how much scratch memory library calls on the host need at most, from
// their plans and the features that a program requires of processors. The
// compiler plans with these bounds, so that a plan does not depend on the
// machine that compiles; the runtime makes oneDNN keep them on every machine.
//
// All sizes are in bytes.
#pragma once

#include "runtime/abi/host_products.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc {

/// The classes of processors that oneDNN has different kernels for, each with
/// the instructions of those before it.
enum class HostIsa { avx2, avx512, avx512Bf16 };
/// Returns the class that processors with these features (LLVM's names) are
/// at least of.
HostIsa isaOf(const std::vector<std::string> &features);

/// Returns the bytes of the operands that `copies`, a denseShape of `shape`,
/// copies.
int64_t copyBytes(const GemmShape &shape, const GemmShape &copies);

/// Returns a bound of the scratch of a product on processors of this class or a
/// later one. The test scratch_test compares it with oneDNN.
int64_t productScratchBytes(const GemmShape &shape, HostIsa isa);

/// Rounds to whole pages, so that no two threads share a cache line.
inline int64_t scratchPerThread(int64_t bytes) {
  return (bytes + 4095) / 4096 * 4096;
}
/// Returns the scratch of all threads of a rank. The calls share it, since they
/// run one at a time. A plan that the host cannot run counts as 0: the device
/// reports it.
int64_t hostScratchBytes(const Manifest &manifest, int threads);

} // namespace fsdpc
