// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The fixture of the conformance suite for library calls: tensors of any type,
// calls on the backend under test, and the comparison with sums in f64.
#pragma once

#include "runtime/numeric/reduce.h"
#include "tests/runtime/device/device_backends.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace fsdpc::testing {

using namespace fsdpc::runtime;

/// A tensor that is stored as f32 or in a 16-bit type, and read and written as
/// doubles. Aligned to 64 bytes, as the runtime's memory is.
struct Tensor {
  Tensor(const std::string &dtype, int64_t elements)
      : type(wireType(dtype)), bytes(elements * elementBytes(type) + 64) {
    auto address = reinterpret_cast<uintptr_t>(bytes.data());
    data = reinterpret_cast<void *>((address + 63) / 64 * 64);
  }
  Tensor(const Tensor &) = delete;
  double operator[](int64_t i) const {
    float value;
    castToWire(at(i), type, WireType::f32, 1, &value);
    return value;
  }
  void set(int64_t i, float value) {
    castToWire(&value, WireType::f32, type, 1, at(i));
  }
  Tensor &fill(int seed) {
    std::mt19937 random(seed);
    for (int64_t i = 0; i < size(); ++i)
      set(i, float(int(random() % 2001) - 1000) / 1000);
    return *this;
  }
  char *at(int64_t i) const {
    return static_cast<char *>(data) + i * elementBytes(type);
  }
  int64_t size() const {
    return int64_t((bytes.size() - 64) / elementBytes(type));
  }
  /// One unit in the last place, with room for sums in f32.
  double tolerance() const {
    return type == WireType::f32    ? 1e-5
           : type == WireType::bf16 ? 1.0 / 128
                                    : 1.0 / 1024;
  }
  std::string image() const {
    return {static_cast<char *>(data), bytes.size() - 64};
  }

  WireType type;
  std::vector<char> bytes;
  void *data;
};

/// Expects |got - expected| to be within the rounding of what was summed.
inline void expectClose(const Tensor &got, const std::vector<double> &expected,
                        double magnitude) {
  ASSERT_EQ(got.size(), int64_t(expected.size()));
  for (int64_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], expected[i],
                got.tolerance() * (std::abs(expected[i]) + 0.1 * magnitude))
        << "at " << i;
}

/// An operand of a call: its host copy, and where the call finds its address.
struct Operand {
  Operand(Tensor &tensor)
      : host(tensor.data), bytes(tensor.bytes.size() - 64) {}
  Operand(std::vector<int32_t> &values)
      : host(values.data()), bytes(values.size() * sizeof(int32_t)) {}
  Operand(std::nullptr_t) {}
  void *host = nullptr;
  size_t bytes = 0;
};

class Libraries : public DeviceTest {
protected:
  /// The types that the backend's libraries compute in. f16 is the host's.
  static bool onHost() { return GetParam().name == std::string("host"); }
  static std::vector<std::string> dtypes() {
    std::vector<std::string> all = {"f32", "bf16"};
    if (onHost())
      all.push_back("f16");
    return all;
  }

  using Call = std::function<void(Device &, const std::vector<void *> &)>;

  /// Runs `call` on this backend, and on one thread to compare the bits.
  /// Operands are copied to device memory and back.
  void run(const Manifest &manifest, const std::vector<Operand> &operands,
           Tensor &result, const Tensor &initial, const Call &call) {
    auto once = [&](Device &device) {
      memcpy(result.data, initial.data, initial.bytes.size() - 64);
      std::vector<void *> places;
      for (const Operand &operand : operands) {
        places.push_back(operand.bytes ? device.allocate(operand.bytes)
                                       : nullptr);
        if (operand.bytes)
          device.upload(places.back(), operand.host, operand.bytes);
      }
      call(device, places);
      device.synchronize();
      for (size_t i = 0; i < operands.size(); ++i)
        if (operands[i].bytes) {
          device.download(operands[i].host, places[i], operands[i].bytes);
          device.release(places[i], operands[i].bytes);
        }
      return result.image();
    };
    auto single = GetParam().make(manifest, 1);
    ASSERT_TRUE(single) << single.error().message;
    std::string expected = once(**single);
    single->reset();
    auto device = make(manifest);
    EXPECT_TRUE(once(*device) == expected) << "bits depend on threads";
    EXPECT_GE(scratchpadBytes(manifest, 1, GetParam().threads), 0);
  }

  void checkMatmul(const MatmulPlan &p);
  void checkConvolution(ConvolutionPlan p);
  void checkPooling(PoolingPlan p, bool gradient);
  void checkAttention(AttentionPlan p);
};

} // namespace fsdpc::testing
