// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's own kernels compiled for the GPU. Each is a __global__ function
// that sets up the Grid and calls the body which the host compiles too.
#include "runtime/cuda/kernels/own.h"

namespace fsdpc::runtime {

namespace {

template <typename Arguments>
// `__grid_constant__` lets the body take the arguments by reference without a
// copy per thread. SumRanks holds 64 pointers, which would go to local memory.
__global__ void __launch_bounds__(ownThreads)
    run(const __grid_constant__ Arguments arguments) {
  __shared__ double shared[ownThreads];
  Grid grid;
  grid.block = blockIdx.x;
  grid.blocks = gridDim.x;
  grid.thread = threadIdx.x;
  grid.threads = blockDim.x;
  grid.shared = shared;
  body(grid, arguments);
}

template <typename Arguments> const void *address() {
  return reinterpret_cast<const void *>(&run<Arguments>);
}

template <typename... Arguments>
OwnTable<const void *> addresses(KernelList<Arguments...>) {
  return {address<Arguments>()...};
}

} // namespace

const OwnTable<const void *> ownKernels = addresses(OwnKernels());

} // namespace fsdpc::runtime
