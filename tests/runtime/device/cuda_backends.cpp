// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The CUDA device for the conformance suites: emulated or on a GPU, depending
// on what the program is linked with.
#include "runtime/abi/memory_plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/cuda/device.h"
#include "tests/runtime/device/device_backends.h"

namespace fsdpc::testing {
using namespace runtime;

namespace {

Result<std::unique_ptr<Device>> makeAlone(const Manifest &manifest, int) {
  static const std::vector<std::unique_ptr<Job>> alone = makeLocalJobs(1, 0);
  static const fsdpc_program program = {}; // no kernels of its own
  MemoryPlan plan;
  plan.allocated = int64_t(16) << 20;
  auto device = makeDevice(manifest, program, *alone[0], DeviceOptions());
  FSDPC_TRY(device);
  FSDPC_TRY((*device)->reserve(plan));
  return device;
}

} // namespace

const std::vector<Backend> &backends() {
  static const std::vector<Backend> all = {{backendName(), 1, makeAlone}};
  return all;
}

} // namespace fsdpc::testing
