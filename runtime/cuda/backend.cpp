// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Defines what runtime/core/device.h declares, for CUDA and its emulation:
// which of the two it is follows from the table that is linked.
#include "runtime/cuda/device.h"

namespace fsdpc::runtime {

// The emulation labels its output and the real table does not.
const char *backendName() { return isEmulation() ? "cuda-emulation" : "cuda"; }
bool isEmulation() { return !cudaApi().label().empty(); }

Status checkBackend(const Manifest &) {
  int count = 0;
  CudaStatus status = cudaApi().deviceCount(count);
  if (status != cudaOk)
    return runError(cudaApi().errorText(status));
  // The driver returns an error in this case, the emulation a count of 0.
  if (count == 0)
    return inputError("the driver reports no GPU; check CUDA_VISIBLE_DEVICES");
  return {};
}

Result<std::unique_ptr<Device>> makeDevice(const Manifest &manifest,
                                           const fsdpc_program &program,
                                           Job &job,
                                           const DeviceOptions &options) {
  auto device =
      std::make_unique<CudaDevice>(cudaApi(), manifest, program, job, options);
  FSDPC_TRY(device->prepare());
  return device;
}

// The threads of the host do not matter here: kernels and libraries run on the
// device.
int64_t scratchpadBytes(const Manifest &manifest, int ranks, int) {
  return cudaScratch(manifest, ranks, ranks > 1).total();
}

} // namespace fsdpc::runtime
