// The device backends that the conformance suites run on, each with the numbers
// of compute threads that make a difference.
#pragma once

#include "runtime/host/host_device.h"

#include <gtest/gtest.h>
#include <ostream>

namespace fsdpc::testing {

struct Backend {
  const char *name;
  int threads;
  std::unique_ptr<HostDevice> (*make)(const Manifest &, int threads,
                                      std::string &error);
};

inline void PrintTo(const Backend &backend, std::ostream *out) {
  *out << backend.name << " with " << backend.threads << " threads";
}

inline const Backend backends[] = {{"host", 1, HostDevice::make},
                                   {"host", 2, HostDevice::make},
                                   {"host", 3, HostDevice::make}};

// A fixture whose device is made from a manifest that the test fills.
class DeviceTest : public ::testing::TestWithParam<Backend> {
protected:
  std::unique_ptr<HostDevice> make(const Manifest &manifest) {
    std::string error;
    auto device = GetParam().make(manifest, GetParam().threads, error);
    EXPECT_TRUE(device) << error;
    return device;
  }
};

} // namespace fsdpc::testing
