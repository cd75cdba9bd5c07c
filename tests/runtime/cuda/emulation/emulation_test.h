// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A fixture with an emulation of its own for each test, and helpers for calls
// that must succeed.
#pragma once

#include "runtime/emulation/emulation.h"
#include "runtime/emulation/status.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <thread>
#include <vector>

namespace fsdpc::runtime::emulation {

#define ASSERT_CUDA(call) ASSERT_EQ(call, cudaOk)
#define EXPECT_CUDA(call) EXPECT_EQ(call, cudaOk)

inline void pauseFor(int microseconds) {
  std::this_thread::sleep_for(std::chrono::microseconds(microseconds));
}

class EmulationTest : public testing::Test {
protected:
  explicit EmulationTest(const Settings &settings = {}) : cuda(settings) {
    EXPECT_CUDA(cuda.allocatePinned(pointers, pointerBytes));
  }

  /// Enqueues host code as a kernel.
  void run(CudaStream stream, std::function<void()> work) {
    EXPECT_CUDA(tryRun(stream, std::move(work)));
  }
  CudaStatus tryRun(CudaStream stream, std::function<void()> work) {
    static const fsdpc_kernel kernel = {
        "work",
        [](int64_t, int64_t, void *const *buffers) {
          auto &work = **static_cast<std::function<void()> **>(buffers[0]);
          work();
        },
        1,
        1,
        1,
        1};
    // The buffer holds a pointer to the work, which the test owns.
    works.push_back(std::make_unique<std::function<void()>>(std::move(work)));
    void *memory = static_cast<char *>(pointers) + used;
    used += 256;
    EXPECT_LE(used, pointerBytes);
    auto *pointer = works.back().get();
    memcpy(memory, &pointer, sizeof pointer);
    return cuda.launch(&kernel, 1, 1, &memory, 1, stream);
  }
  CudaStream stream() {
    CudaStream made = nullptr;
    EXPECT_CUDA(cuda.createStream(made, false));
    return made;
  }
  CudaEvent event() {
    CudaEvent made = nullptr;
    EXPECT_CUDA(cuda.createEvent(made));
    return made;
  }

  /// Pinned memory for the addresses of works, one in each 256 bytes.
  static constexpr size_t pointerBytes = size_t(1) << 20;
  std::vector<std::unique_ptr<std::function<void()>>> works;
  void *pointers = nullptr;
  size_t used = 0;
  Emulation cuda; ///< last member: its streams use the others
};

} // namespace fsdpc::runtime::emulation
