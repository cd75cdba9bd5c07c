// What runtime/core asks of the backend that a program is linked with.
#include "runtime/cuda/device.h"

namespace fsdpc {

namespace {

constexpr int oldestDriver = 13000; // of the toolkit that built the runtime

} // namespace

const char *backendName() {
  return cudaApi().label().empty() ? "cuda" : "cuda-emulation";
}

bool checkBackend(const Manifest &, std::string &error) {
  CudaApi &api = cudaApi();
  // Without a device: each rank takes memory of its own alone.
  int driver = 0, count = 0;
  CudaStatus status = api.driverVersion(driver);
  if (status == cudaOk && driver != 0 && driver < oldestDriver) {
    auto text = [](int version) {
      return std::to_string(version / 1000) + "." +
             std::to_string(version % 1000 / 10);
    };
    error = "the driver runs CUDA " + text(driver) +
            ", and the program needs " + text(oldestDriver) +
            "; install a newer driver";
    return false;
  }
  if (status == cudaOk)
    status = api.deviceCount(count);
  if (status != cudaOk || count == 0) {
    error = "no GPU can be used: " +
            (status != cudaOk ? api.errorText(status)
                              : std::string("the driver shows none")) +
            "; check 'nvidia-smi' and CUDA_VISIBLE_DEVICES";
    return false;
  }
  return true;
}

std::unique_ptr<Device> makeDevice(const Manifest &manifest,
                                   const fsdpc_program &program, Job &job,
                                   const DeviceOptions &options,
                                   std::string &error) {
  auto device =
      std::make_unique<CudaDevice>(cudaApi(), manifest, program, job, options);
  if (!device->prepare(error))
    return nullptr;
  return device;
}

int64_t scratchpadBytes(const Manifest &manifest, int) {
  return cudaScratch(manifest).total();
}

} // namespace fsdpc
