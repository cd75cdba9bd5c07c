// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The end of an emulated device while its GPU hangs.
#include "runtime/abi/memory_plan.h"
#include "runtime/core/rank.h"
#include "runtime/support/exit_code.h"

#include <gtest/gtest.h>
#include <unistd.h>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

void neverEnd(int64_t, int64_t, void *const *) {
  for (;;)
    pause();
}

const fsdpc_kernel hung = {"hung", neverEnd, 1, 1, 1, 1};

void enqueue(fsdpc_rank *rank) { fsdpc_launch(rank, &hung, nullptr, 0); }

// Leaves a kernel behind that never ends, as a run does that ends with an error
// of the host.
void leaveHungKernel() {
  Manifest manifest;
  manifest.computeDtype = manifest.reduceDtype = "f32";
  auto jobs = makeLocalJobs(1, 0);
  fsdpc_program program = {};
  program.kernels = &hung;
  program.kernel_count = 1;
  DeviceOptions options;
  options.firstStepSeconds = 1;
  auto device = makeDevice(manifest, program, *jobs[0], options);
  ASSERT_TRUE(device) << device.error().message;
  fsdpc_rank rank(manifest, program, *jobs[0], std::move(*device));
  Status allocated = rank.allocate(planMemory(manifest, 1, 1, 1, 0, 0));
  ASSERT_TRUE(allocated) << allocated.error().message;
  ASSERT_TRUE(rank.device->gatherWholes(rank));
  rank.device->enter(rank, {}, enqueue);
}

TEST(DeviceDeathTest, endsAfterTheLimitWhenAKernelHangs) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(leaveHungKernel(),
              ::testing::ExitedWithCode(int(ExitCode::machineFailed)),
              "error: rank 0, step 0: the GPU has made no progress for 1 s; a "
              "kernel hangs, or is slower than --first-step-timeout allows");
}

} // namespace
