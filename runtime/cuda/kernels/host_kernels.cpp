// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's own kernels compiled for the host, for the emulation and tests.
#include "runtime/cuda/kernels/own.h"

namespace fsdpc::runtime {

namespace {

// The table has one type of function for all kernels, hence the pointer to
// void.
template <typename Arguments>
void run(const Grid &grid, const void *arguments) {
  body(grid, *static_cast<const Arguments *>(arguments));
}

// In the order of the list, so that numberOf indexes both tables.
template <typename... Arguments>
OwnTable<OwnHostKernel> bodies(KernelList<Arguments...>) {
  return {run<Arguments>...};
}

} // namespace

const OwnTable<OwnHostKernel> ownHostKernels = bodies(OwnKernels());

} // namespace fsdpc::runtime
