// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The host device for the conformance suites, with one and several threads.
#include "runtime/host/host_device.h"
#include "tests/runtime/device/device_backends.h"

namespace fsdpc::testing {
using namespace runtime;

const std::vector<Backend> &backends() {
  auto make = [](const Manifest &manifest,
                 int threads) -> Result<std::unique_ptr<Device>> {
    auto device = HostDevice::make(manifest, threads);
    FSDPC_TRY(device);
    return std::move(*device);
  };
  static const std::vector<Backend> all = {
      {"host", 1, make}, {"host", 2, make}, {"host", 3, make}};
  return all;
}

} // namespace fsdpc::testing
