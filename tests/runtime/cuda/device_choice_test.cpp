// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tests which GPU a rank takes, and on which processors its threads run.
#include "runtime/cuda/affinity.h"
#include "runtime/cuda/device_choice.h"
#include "runtime/emulation/emulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

NodeName nodeOf(const char *boot) {
  NodeName node;
  strcpy(node.host, "worker");
  strcpy(node.boot, boot);
  return node;
}

// Chooses for two processes on machines with one GPU each. Returns the message
// of rank 0, or "".
std::string choose(const NodeName &first, const NodeName &second) {
  emulation::Settings settings;
  settings.fault.kind = emulation::Fault::fewDevices;
  emulation::Emulation api(settings);
  auto jobs = makeLocalJobs(2, 0);
  std::string messages[2];
  auto body = [&](size_t rank, const NodeName &node) {
    jobs[rank]->sharesProcess = false;
    Status status = chooseDevice(api, *jobs[rank], node);
    messages[rank] = status ? "" : status.error().message;
  };
  std::thread other(body, 1, second);
  body(0, first);
  other.join();
  EXPECT_EQ(messages[0], messages[1]);
  return messages[0];
}

// Two containers of one host name run on one node only if its kernel was booted
// once.
TEST(DeviceChoice, comparesTheBootOfNodesOfOneName) {
  EXPECT_EQ(choose(nodeOf("first"), nodeOf("second")), "");
  EXPECT_THAT(choose(nodeOf("first"), nodeOf("first")),
              testing::StartsWith("node 'worker' has 1 GPU for 2 ranks"));
}

// NCCL's own switch lets processes share a GPU.
TEST(DeviceChoice, sharesAGpuIfNcclDoes) {
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
  EXPECT_EQ(choose(nodeOf("first"), nodeOf("first")), "");
  setenv("NCCL_MULTI_RANK_GPU_ENABLE", "0", 1);
  EXPECT_THAT(choose(nodeOf("first"), nodeOf("first")),
              testing::StartsWith("node 'worker' has 1 GPU for 2 ranks"));
  unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
}

// The boot id tells two machines of one name apart.
TEST(DeviceChoice, knowsItsNode) {
  NodeName node = NodeName::own();
  EXPECT_STRNE(node.host, "");
  EXPECT_EQ(strlen(node.boot), std::filesystem::exists("/proc") ? 36u : 0u);
}

// As in /sys/devices: numbers and ranges; anything else is an empty set.
TEST(Affinity, parsesLists) {
  cpu_set_t found = parseProcessors("0-3,8,10-11");
  EXPECT_EQ(CPU_COUNT(&found), 7);
  EXPECT_TRUE(CPU_ISSET(3, &found) && CPU_ISSET(8, &found));
  for (const char *text : {"", "-", "3-", "a", "1,,2", "1;2", "99999999"}) {
    cpu_set_t none = parseProcessors(text);
    EXPECT_EQ(CPU_COUNT(&none), 0) << text;
  }
}

class AffinityOfThread : public testing::Test {
protected:
  AffinityOfThread() {
    strcpy(folder, "/tmp/fsdpc-affinity-XXXXXX");
    EXPECT_TRUE(mkdtemp(folder));
    std::filesystem::create_directory(std::string(folder) + "/0000:3b:00.0");
  }
  ~AffinityOfThread() override { std::filesystem::remove_all(folder); }

  // Says which processors are near, and asks on a thread of its own.
  std::string stay(const std::string &near) {
    std::ofstream(std::string(folder) + "/0000:3b:00.0/local_cpulist")
        << near << "\n";
    std::string list;
    std::thread([&] {
      list = stayNear("0000:3b:00.0", folder);
      sched_getaffinity(0, sizeof left, &left);
    }).join();
    return list;
  }

  char folder[64];
  cpu_set_t left; // where the thread may run afterwards
};

// The processors near a GPU, less those that the thread may not use.
TEST_F(AffinityOfThread, isWhatIsNearAndAllowed) {
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof allowed, &allowed);
  int first = 0;
  while (!CPU_ISSET(first, &allowed))
    ++first;
  // One that is allowed, and one that no machine here has.
  std::string list = std::to_string(first) + ",1023";
  if (CPU_COUNT(&allowed) > 1) {
    EXPECT_EQ(stay(list), list);
    EXPECT_EQ(CPU_COUNT(&left), 1);
    EXPECT_TRUE(CPU_ISSET(first, &left));
  }
  // Nothing near is allowed; everything allowed is near; nothing is known.
  for (const char *near : {"1023", "0-1023", "nonsense"}) {
    EXPECT_EQ(stay(near), "") << near;
    EXPECT_TRUE(CPU_EQUAL(&left, &allowed)) << near;
  }
  EXPECT_EQ(stayNear("0000:00:00.0", folder), "");
  EXPECT_EQ(stayNear("", folder), "");
}

} // namespace
