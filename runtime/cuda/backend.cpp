// What runtime/core asks of the backend that a program is linked with.
#include "runtime/cuda/device.h"

namespace fsdpc {

namespace {

constexpr int oldestDriver = 13000; // of the toolkit that built the runtime

} // namespace

const char *backendName() { return isEmulation() ? "cuda-emulation" : "cuda"; }
bool isEmulation() { return !cudaApi().label().empty(); }

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
  if (status == cudaOk && count > 0)
    return true;
  error = status != cudaOk ? api.errorText(status)
                           : "the driver shows no GPU; CUDA_VISIBLE_DEVICES "
                             "may hide it";
  return false;
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
