// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Memory of the emulated devices: what fresh memory holds, how much there is,
// and how accesses outside of an allocation end. Accesses that a real GPU might
// let pass must crash here at once.
#include "tests/runtime/cuda/emulation/emulation_test.h"

#include <cmath>
#include <cstdint>

using namespace fsdpc;
using namespace fsdpc::runtime;

using namespace fsdpc::runtime::emulation;

namespace {

constexpr size_t megabyte = size_t(1) << 20;

Settings smallDevice() {
  Settings settings;
  settings.memory = 8 * megabyte;
  settings.pinned = 4 * megabyte;
  settings.devices = 2;
  return settings;
}

class DeviceMemory : public EmulationTest {
protected:
  DeviceMemory() : EmulationTest(smallDevice()) {}
  char *allocate(size_t bytes) {
    void *memory = nullptr;
    EXPECT_CUDA(cuda.allocateDevice(memory, bytes));
    return static_cast<char *>(memory);
  }
};

// Reads of memory that nobody wrote show as NaN.
TEST_F(DeviceMemory, holdsNoNumberAtFirst) {
  auto *values = reinterpret_cast<float *>(allocate(1024));
  DeviceAccess access;
  for (int i = 0; i < 256; ++i)
    EXPECT_TRUE(std::isnan(values[i]));
}

// As on CUDA.
TEST_F(DeviceMemory, isAligned) {
  for (size_t bytes : {1, 255, 256, 4096, 5000})
    EXPECT_EQ(reinterpret_cast<uintptr_t>(allocate(bytes)) % 256, 0u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(allocate(megabyte + 1)) % 4096, 0u);
}

// Each device has a limit of its own, and the error says how much is free.
TEST_F(DeviceMemory, runsOut) {
  char *most = allocate(7 * megabyte);
  void *more = nullptr;
  EXPECT_EQ(cuda.allocateDevice(more, 2 * megabyte), status::memoryAllocation);
  EXPECT_EQ(more, nullptr);
  EXPECT_NE(cuda.errorText(status::memoryAllocation)
                .find("2097152 bytes on emulated device 0, 1048576 are free"),
            std::string::npos);
  CudaDeviceInfo info;
  ASSERT_CUDA(cuda.deviceInfo(info));
  EXPECT_EQ(info.totalBytes, 8 * megabyte);
  EXPECT_EQ(info.freeBytes, megabyte);
  // The other device has memory of its own.
  ASSERT_CUDA(cuda.selectDevice(1));
  allocate(2 * megabyte);
  ASSERT_CUDA(cuda.selectDevice(0));
  ASSERT_CUDA(cuda.freeDevice(most));
  allocate(2 * megabyte);
}

TEST_F(DeviceMemory, runsOutOfPinnedMemory) {
  void *most = nullptr, *more = nullptr;
  size_t taken = cuda.alive().pinnedBytes;
  ASSERT_CUDA(cuda.allocatePinned(most, 4 * megabyte - taken - 100));
  EXPECT_EQ(cuda.allocatePinned(more, 101), status::memoryAllocation);
  EXPECT_NE(cuda.errorText(status::memoryAllocation)
                .find("101 bytes of pinned memory, 100 are free"),
            std::string::npos);
  ASSERT_CUDA(cuda.freePinned(most));
  EXPECT_CUDA(cuda.allocatePinned(more, 101));
}

// Leaks show in the counts; memory is freed once, and as what it was allocated.
TEST_F(DeviceMemory, isCounted) {
  size_t pinned = cuda.alive().pinnedBytes;
  void *memory;
  ASSERT_CUDA(cuda.allocatePinned(memory, 1000));
  char *device = allocate(3000);
  EXPECT_EQ(cuda.alive().pinnedBytes, pinned + 1000);
  EXPECT_EQ(cuda.alive().deviceBytes, 3000u);
  EXPECT_EQ(cuda.freeDevice(memory), status::invalidValue);
  EXPECT_EQ(cuda.freePinned(device), status::invalidValue);
  ASSERT_CUDA(cuda.freePinned(memory));
  ASSERT_CUDA(cuda.freeDevice(device));
  EXPECT_EQ(cuda.freeDevice(device), status::invalidValue);
  EXPECT_EQ(cuda.alive().pinnedBytes, pinned);
  EXPECT_EQ(cuda.alive().deviceBytes, 0u);
}

// A copy or fill that leaves an allocation is refused.
TEST_F(DeviceMemory, copiesStayWithinAllocations) {
  CudaStream one = stream();
  char *first = allocate(512), *second = allocate(512);
  std::vector<char> host(512, 7);
  EXPECT_CUDA(cuda.copy(first, host.data(), 512, one));
  EXPECT_CUDA(cuda.copy(second + 256, first, 256, one));
  EXPECT_CUDA(cuda.fill(second, 9, 256, one));
  EXPECT_CUDA(cuda.copy(host.data(), second, 512, one));
  EXPECT_EQ(host[0], 9);
  EXPECT_EQ(host[511], 7);
  EXPECT_EQ(cuda.copy(second + 257, first, 256, one), status::invalidValue);
  EXPECT_EQ(cuda.copy(second, first - 1, 16, one), status::invalidValue);
  EXPECT_EQ(cuda.fill(second, 0, 513, one), status::invalidValue);
  EXPECT_EQ(cuda.fill(host.data(), 0, 512, one), status::invalidValue);
  ASSERT_CUDA(cuda.freeDevice(first));
  EXPECT_EQ(cuda.copy(second, first, 16, one), status::invalidValue);
}

// Kernels refuse host memory and other devices' memory.
TEST_F(DeviceMemory, kernelsTakeTheirDevicesBuffers) {
  CudaStream one = stream();
  static const fsdpc_kernel kernel = {
      "touch", [](int64_t, int64_t, void *const *) {}, 1, 1, 1, 1};
  auto launch = [&](void *buffer) {
    return cuda.launch(&kernel, 1, 1, &buffer, 1, one);
  };
  EXPECT_CUDA(launch(allocate(16)));
  EXPECT_CUDA(launch(nullptr));
  int local = 0;
  EXPECT_EQ(launch(&local), status::invalidValue);
  ASSERT_CUDA(cuda.selectDevice(1));
  char *foreign = allocate(16);
  ASSERT_CUDA(cuda.selectDevice(0));
  EXPECT_EQ(launch(foreign), status::invalidValue);
}

class DeviceMemoryDeath : public DeviceMemory {
protected:
  DeviceMemoryDeath() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

// Host code that touches device memory crashes, as with a real device.
TEST_F(DeviceMemoryDeath, comesToTheHost) {
  if (!DeviceAccess::isGuarded())
    GTEST_SKIP() << "the processor has no protection keys";
  volatile char *memory = allocate(512);
  EXPECT_DEATH(memory[0] = 1, "");
  DeviceAccess access;
  memory[0] = 1;
}

// An access right behind or before an allocation crashes.
TEST_F(DeviceMemoryDeath, comesAtTheGuards) {
  DeviceAccess access;
  volatile char *memory = allocate(512);
  EXPECT_DEATH(memory[512] = 1, "");
  volatile char *large = allocate(megabyte);
  EXPECT_DEATH(large[-1] = 1, "");
  EXPECT_DEATH(large[megabyte] = 1, "");
}

// Freed memory stays inaccessible.
TEST_F(DeviceMemoryDeath, comesToThoseWhoUseFreedMemory) {
  DeviceAccess access;
  volatile char *memory = allocate(512);
  ASSERT_CUDA(cuda.freeDevice(const_cast<char *>(memory)));
  EXPECT_DEATH(memory[0] = 1, "");
}

// A write into the rest of a page is noticed when the memory is freed.
TEST_F(DeviceMemoryDeath, comesAtTheEndToThoseWhoWroteBeside) {
  DeviceAccess access;
  char *memory = allocate(100);
  EXPECT_DEATH(
      {
        memory[100] = 1;
        (void)cuda.freeDevice(memory);
      },
      "write outside an allocation of 100 bytes");
}

// Every kind of fault, with its number and rank, and malformed ones.
TEST(Faults, areRead) {
  auto fault = parseFault("launch:7");
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, Fault::launch);
  EXPECT_EQ(fault->number, 7);
  EXPECT_EQ(fault->rank, 0);
  fault = parseFault("silent:3@2");
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, Fault::silent);
  EXPECT_EQ(fault->number, 3);
  EXPECT_EQ(fault->rank, 2);
  fault = parseFault("late-memory:2");
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, Fault::lateMemory);
  EXPECT_EQ(fault->number, 2);
  fault = parseFault("refuse-attention");
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, Fault::refuseAttention);
  fault = parseFault("few-devices");
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, Fault::fewDevices);
  for (const char *wrong : {"lunch:7", "launch:0", "launch:x", "memory:1",
                            "driver@1", "nccl:1@", ""})
    EXPECT_FALSE(parseFault(wrong)) << wrong;
  EXPECT_EQ(
      parseFault("").error().message,
      "'' is not a valid fault; use launch:N, hang:N, nccl:N, silent:N, "
      "late-memory:N or endless:N, optionally with @RANK, or memory, driver, "
      "few-devices, old-nccl, refuse-shared, refuse-windows, refuse-products, "
      "refuse-epilogues, refuse-convolutions, "
      "refuse-attention");
}

// A misspelt variable would silently leave out the fault that a test is about.
TEST(Faults, aMisspeltVariableIsFound) {
  char seed[] = "FSDPC_EMULATION_SEED=1", other[] = "FSDPC_JOIN_SECONDS=2",
       wrong[] = "FSDPC_EMULATION_FAULTS=driver";
  char *good[] = {seed, other, nullptr}, *bad[] = {seed, wrong, nullptr};
  EXPECT_EQ(unknownVariable(good), "");
  EXPECT_EQ(unknownVariable(bad), "FSDPC_EMULATION_FAULTS");
}

Settings withFault(Fault::Kind kind) {
  Settings settings;
  settings.fault.kind = kind;
  return settings;
}

// Faults of the machine: no memory, fewer devices, no driver.
TEST(Faults, takeMemoryDevicesAndDriverAway) {
  void *memory;
  Emulation exhausted(withFault(Fault::memory));
  EXPECT_EQ(exhausted.allocateDevice(memory, 16), status::memoryAllocation);
  EXPECT_EQ(exhausted.allocatePinned(memory, 16), status::memoryAllocation);
  int count = -1;
  Emulation few(withFault(Fault::fewDevices));
  EXPECT_CUDA(few.deviceCount(count));
  EXPECT_EQ(count, 1);
  EXPECT_EQ(few.selectDevice(1), status::invalidDevice);
  Emulation none(withFault(Fault::driver));
  EXPECT_EQ(none.deviceCount(count), status::insufficientDriver);
  EXPECT_EQ(none.errorText(status::insufficientDriver),
            "CUDA driver version is insufficient for CUDA runtime version");
}

} // namespace
