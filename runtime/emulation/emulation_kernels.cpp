// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of the emulation: the program's grid kernels, compiled for the host
// with one thread per block, and the runtime's own kernels. Blocks run in an
// order that depends on the seed, so code that relies on their order fails.
// Several may run at once, so that the thread sanitizer sees their races.
#include "runtime/comm/thread.h"
#include "runtime/cuda/kernels/own.h"
#include "runtime/emulation/emulation.h"
#include "runtime/emulation/memory.h"
#include "runtime/emulation/status.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace fsdpc::runtime::emulation {

namespace {

// Runs every block once, beginning with a random one, on up to `atOnce`
// threads.
template <typename Run>
void eachBlock(Chance &chance, int64_t blocks, int atOnce, const Run &run) {
  // A rotation: cheap, and no block is first in every run.
  int64_t first = chance.pick(blocks);
  std::atomic<int64_t> next = 0;
  auto work = [&] {
    for (int64_t i; (i = next++) < blocks;)
      run((first + i) % blocks);
  };
  std::vector<std::thread> others;
  for (int64_t i = 1; i < std::min<int64_t>(atOnce, blocks); ++i)
    others.push_back(startThread("the blocks of a kernel", [&] {
      DeviceAccess access;
      work();
    }));
  work();
  for (std::thread &other : others)
    other.join();
}

// A kernel that hangs keeps its stream until the process ends.
void hangIfStruck(Faults &faults, int rank) {
  // The watchdog of runtime/cuda has to find it.
  if (faults.strikes(Fault::hang, rank))
    for (;;)
      pause();
}

} // namespace

CudaStatus Emulation::loadProgram(const fsdpc_program &loaded) {
  if (CudaStatus status = refuseInCapture("loadProgram"))
    return status;
  std::lock_guard<std::mutex> lock(mutex);
  program = &loaded;
  return currentDevice().state();
}

// The handle is the address of the entry in the program's table. Refuses
// kernels of another program, and those compiled for a GPU, which have no
// function for the host.
CudaStatus Emulation::findKernel(const fsdpc_kernel &kernel,
                                 CudaFunction &function) {
  std::lock_guard<std::mutex> lock(mutex);
  if (!program || &kernel < program->kernels ||
      &kernel >= program->kernels + program->kernel_count || !kernel.host ||
      kernel.threads != 1)
    return status::refuse(
        status::symbolNotFound,
        std::string("kernel '") + kernel.name +
            "' does not belong to a program for the emulation");
  function = &kernel;
  return cudaOk;
}

CudaStatus Emulation::launch(CudaFunction function, int64_t blocks, int threads,
                             void *const *buffers, int count,
                             CudaStream stream) {
  const auto *kernel = static_cast<const fsdpc_kernel *>(function);
  if (!kernel || blocks < 1 || threads != 1)
    return status::refuse(
        status::invalidValue,
        concat("a launch of ", blocks, " blocks of ", threads, " threads"));
  // Only the first byte: a kernel does not say how much it accesses. The guard
  // pages catch the rest. Null is a missing optional operand.
  for (int i = 0; i < count; ++i)
    if (buffers[i])
      if (CudaStatus status = checkBuffer(buffers[i], 1, kernel->name))
        return status;
  // Arguments are copied at the launch, as CUDA does; the caller's list is gone
  // when the kernel runs.
  std::vector<void *> arguments(buffers, buffers + count);
  return submit(
      stream, /*bound=*/true,
      [this, kernel, blocks, arguments = std::move(arguments),
       &device = currentDevice()](Chance &chance) {
        hangIfStruck(faults, settings.rank);
        if (faults.strikes(Fault::launch, settings.rank))
          return device.fail(status::launchFailure,
                             std::string("kernel '") + kernel->name + "'");
        eachBlock(chance, blocks, settings.blocksAtOnce, [&](int64_t block) {
          kernel->host(block, block + 1, arguments.data());
        });
      });
}

CudaStatus Emulation::launchOwn(int kernel, int64_t blocks,
                                const void *arguments, size_t bytes,
                                CudaStream stream) {
  if (kernel < 0 || size_t(kernel) >= ownHostKernels.size() || blocks < 1)
    return status::refuse(status::invalidValue,
                          concat("a launch of ", blocks,
                                 " blocks of the runtime's kernel ", kernel));
  // Aligned for any struct of arguments.
  std::vector<std::max_align_t> copied((bytes + sizeof(std::max_align_t) - 1) /
                                       sizeof(std::max_align_t));
  memcpy(copied.data(), arguments, bytes);
  return submit(stream, /*bound=*/true,
                [this, kernel, blocks, copied = std::move(copied),
                 &device = currentDevice()](Chance &chance) {
                  hangIfStruck(faults, settings.rank);
                  if (faults.strikes(Fault::launch, settings.rank))
                    return device.fail(status::launchFailure,
                                       concat("the runtime's kernel ", kernel));
                  eachBlock(chance, blocks, settings.blocksAtOnce,
                            [&](int64_t block) {
                              // One thread per block, so reductions return
                              // their own value; some bodies still use the
                              // first word.
                              double shared[1];
                              Grid grid;
                              grid.block = block;
                              grid.blocks = blocks;
                              grid.shared = shared;
                              ownHostKernels[kernel](grid, copied.data());
                            });
                });
}

} // namespace fsdpc::runtime::emulation
