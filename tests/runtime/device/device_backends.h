// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The device backends that the conformance suites run on. Each suite is linked
// once per backend, with the file that defines `backends`.
#pragma once

#include "runtime/core/device.h"

#include <gtest/gtest.h>
#include <ostream>

namespace fsdpc::testing {

using namespace runtime;

struct Backend {
  const char *name;
  int threads; ///< compute threads
  /// Makes the device of a single rank, with room for a test's buffers.
  Result<std::unique_ptr<Device>> (*make)(const Manifest &, int threads);
};

/// The linked backend, once per number of threads that makes a difference.
const std::vector<Backend> &backends();

inline void PrintTo(const Backend &backend, std::ostream *out) {
  *out << backend.name << " with " << backend.threads << " threads";
}

/// A fixture whose device is made from a manifest that the test fills.
class DeviceTest : public ::testing::TestWithParam<Backend> {
protected:
  std::unique_ptr<Device> make(const Manifest &manifest) {
    auto device = GetParam().make(manifest, GetParam().threads);
    EXPECT_TRUE(device) << device.error().message;
    return device ? std::move(*device) : nullptr;
  }
};

} // namespace fsdpc::testing
