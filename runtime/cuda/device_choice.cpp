// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Launchers assign GPUs in two ways: every rank sees all GPUs of its node, or
// each sees only its own (srun --gpus-per-task), by CUDA_VISIBLE_DEVICES or by
// isolation. So a rank counts only the ranks that see the same GPUs as it does.
#include "runtime/cuda/device_choice.h"

#include "runtime/support/concat.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdpc::runtime {

namespace {

// The GPUs that a rank sees, and on which node. Exchanged as bytes.
struct Sight {
  NodeName node;
  char only[64] = {};
  uint64_t visible = 0; // a hash: a list of GPUs' ids has any length
};

// NCCL 2.30 and later lets several ranks use one GPU if its own switch says so,
// which tests NCCL between processes on one card. Older ones refuse to join.
bool sharesGpus() {
  const char *value = getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  return value && !strcmp(value, "1");
}

} // namespace

NodeName NodeName::own() {
  NodeName name;
  gethostname(name.host, sizeof name.host - 1);
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  boot.copy(name.boot, sizeof name.boot - 1);
  return name;
}

Status chooseDevice(CudaApi &api, Job &job, const NodeName &node) {
  int count = 0;
  CudaStatus status = api.deviceCount(count);
  // Zeroed, because all bytes are compared below.
  Sight own;
  own.node = node;
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  if (visible)
    own.visible = XXH64(visible, strlen(visible), 1);
  // A single visible GPU may be a different one for each rank, so its identity
  // is compared too.
  if (status == cudaOk && count == 1) {
    CudaDeviceInfo info;
    status = api.selectDevice(0);
    if (status == cudaOk)
      status = api.deviceInfo(info);
    info.id.copy(own.only, sizeof own.only);
  }
  // All ranks exchange even if this one has failed, or the others would wait.
  std::vector<Sight> all(size_t(job.size), own);
  if (job.size > 1)
    job.channel[controlChannel]->allGather(&own, all.data(), sizeof own);
  // `place` is this rank's index among the ranks that see the same GPUs.
  int place = 0, sharing = 0;
  for (int rank = 0; rank < job.size; ++rank)
    if (memcmp(&all[size_t(rank)], &own, sizeof own) == 0) {
      place += rank < job.rank;
      ++sharing;
    }
  // The collectives of such ranks read each other's memory on one GPU.
  if (job.sharesProcess)
    place = 0;
  else if (status == cudaOk && count > 0 && sharing > count && sharesGpus())
    place %= count;
  else if (status == cudaOk && sharing > count) {
    std::string ranks = std::to_string(sharing);
    return inputError(concat(
        "node '", node.host, "' has ", count, count == 1 ? " GPU" : " GPUs",
        visible ? std::string(" (CUDA_VISIBLE_DEVICES=") + visible + ")" : "",
        " for ", ranks,
        " ranks; start fewer ranks on this node, or start one process "
        "with --ranks ",
        ranks, ", so that the ranks share a GPU"));
  }
  if (status == cudaOk)
    status = api.selectDevice(place);
  if (status != cudaOk)
    return runError(concat("cannot use GPU ", place, " of node '", node.host,
                           "': ", api.errorText(status)));
  return {};
}

} // namespace fsdpc::runtime
