// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs the bodies of the runtime's own CUDA kernels on the host: with one
// thread per block, as the emulation runs them, and with one thread of the
// system per CUDA thread of a block, which tests barriers and block-wide sums.
#pragma once

#include "runtime/cuda/kernels/own.h"
#include "runtime/numeric/float16.h"
#include "runtime/numeric/reduce.h"

#include <cstring>
#include <gtest/gtest.h>
#include <ostream>
#include <pthread.h>
#include <random>
#include <thread>
#include <vector>

namespace fsdpc::testing {

using namespace fsdpc::runtime;

struct Launch {
  int64_t blocks;
  int threads;
};

inline void PrintTo(const Launch &launch, std::ostream *out) {
  *out << launch.blocks << " blocks of " << launch.threads;
}

class OwnKernelTest : public ::testing::TestWithParam<Launch> {
protected:
  template <typename Arguments> void run(const Arguments &arguments) {
    int threads = GetParam().threads;
    OwnHostKernel kernel =
        ownHostKernels[fsdpc::runtime::OwnKernels::numberOf<Arguments>()];
    for (int64_t block = 0; block < GetParam().blocks; ++block) {
      std::vector<double> shared(threads);
      pthread_barrier_t barrier;
      pthread_barrier_init(&barrier, nullptr, threads);
      auto body = [&](int thread) {
        Grid grid;
        grid.block = block, grid.blocks = GetParam().blocks;
        grid.thread = thread, grid.threads = threads;
        grid.shared = shared.data();
        grid.barrier = [](void *b) {
          pthread_barrier_wait(static_cast<pthread_barrier_t *>(b));
        };
        grid.barrierState = &barrier;
        kernel(grid, &arguments);
      };
      std::vector<std::thread> others;
      for (int thread = 1; thread < threads; ++thread)
        others.emplace_back(body, thread);
      body(0);
      for (std::thread &other : others)
        other.join();
      pthread_barrier_destroy(&barrier);
    }
  }
};

inline std::vector<float> randomFloats(size_t count, int seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float &value : values)
    value = float(int(random() % 20001) - 10000) / 7000;
  return values;
}

inline std::vector<BFloat16> narrowed(const std::vector<float> &values) {
  std::vector<BFloat16> result;
  for (float value : values)
    result.push_back(narrow<BFloat16>(value));
  return result;
}

constexpr WireType types[] = {WireType::f32, WireType::bf16, WireType::f16};

/// The bytes of the values in a type, as castToWire rounds them.
inline std::vector<char> bytesIn(WireType type,
                                 const std::vector<float> &values) {
  std::vector<char> bytes(values.size() * elementBytes(type));
  castToWire(values.data(), WireType::f32, type, int64_t(values.size()),
             bytes.data());
  return bytes;
}

template <typename T> std::string image(const std::vector<T> &values) {
  return {reinterpret_cast<const char *>(values.data()),
          values.size() * sizeof(T)};
}

/// Memory that is aligned as on a device.
template <typename T> struct Aligned {
  explicit Aligned(const std::vector<T> &values)
      : bytes(image(values).size() + 64) {
    auto address = reinterpret_cast<uintptr_t>(bytes.data());
    data = reinterpret_cast<T *>((address + 63) / 64 * 64);
    std::copy(values.begin(), values.end(), data);
  }
  Aligned(const Aligned &) = delete;
  std::vector<char> bytes;
  T *data;
};

inline auto someLaunches() {
  return ::testing::Values(Launch{1, 1}, Launch{3, 1}, Launch{1, 8},
                           Launch{2, 32});
}

} // namespace fsdpc::testing
