// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Versions are those at which NCCL's release notes name the feature. They are
// asked at run time, since a program may run with another NCCL than the one
// that it was linked with.
#include "runtime/cuda/nccl_memory.h"
#include "runtime/support/concat.h"
#include "runtime/support/diagnostics.h"

#include <algorithm>
#include <ranges>

namespace fsdpc::runtime {

namespace {

constexpr int ordersCommunicators = 22600; // NCCL_LAUNCH_ORDER_IMPLICIT
constexpr int knowsWindows = 22700;        // ncclCommWindowRegister
constexpr int knowsZeroCtas = 22800;       // NCCL_CTA_POLICY_ZERO

// 22809 becomes "2.28.9".
std::string versionText(int version) {
  return concat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// One rank's part of the agreement.
struct Offer {
  CudaStatus status = cudaOk;
  int version = 0;
  bool isShared = false;
  uint64_t places = 0;
};

// Returns why memory is not registered as symmetric windows, or "".
std::string noWindows(const std::vector<Offer> &all, int version,
                      const CollectiveResources &resources) {
  if (version < knowsWindows)
    return "symmetric windows need NCCL 2.27";
  if (!resources.notShared.empty())
    return resources.notShared;
  for (const Offer &offer : all)
    if (!offer.isShared)
      return "the memory of another rank is not NCCL's";
  // Owners, for example, hold values of different sizes.
  for (const Offer &offer : all)
    if (offer.places != all[0].places)
      return "the ranks' buffers lie at different offsets";
  return "";
}

} // namespace

Result<NcclUse> agreeOnNccl(CudaApi &api, Job &job,
                            const DeviceOptions &options,
                            const CollectiveResources &resources) {
  Offer own;
  own.status = api.ncclVersion(own.version);
  own.isShared = resources.notShared.empty();
  own.places = resources.places;
  std::vector<Offer> all(size_t(job.size));
  job.channel[controlChannel]->allGather(&own, all.data(), sizeof own);
  int version = own.version;
  for (const Offer &offer : all) {
    if (offer.status)
      return runError("cannot ask NCCL for its version: " +
                      api.errorText(offer.status));
    version = std::min(version, offer.version);
  }
  if (version < ordersCommunicators && job.rank == 0)
    printWarning("NCCL " + versionText(version) +
                 " does not know NCCL_LAUNCH_ORDER_IMPLICIT: gathers and "
                 "reductions of a graph may wait for each other for ever; use "
                 "NCCL 2.26 or newer, or run with --no-graph");
  NcclUse use;
  std::string reason = noWindows(all, version, resources);
  use.windows = reason.empty();
  use.config.zeroCtas = use.windows && version >= knowsZeroCtas;
  use.config.maxCtas = int(options.ncclMaxCtas);
  use.note =
      "NCCL " + versionText(version) + ": " +
      (use.windows ? "memory in symmetric windows"
                   : "no symmetric windows (" + reason + ")") +
      (use.config.zeroCtas ? ", gathers by copy engines where NCCL can" : "") +
      (use.config.maxCtas > 0 ? concat(", at most ", use.config.maxCtas,
                                       " multiprocessors for a collective")
                              : "");
  return use;
}

NcclRegistrations::~NcclRegistrations() {
  for (const Registration &own : std::views::reverse(registrations))
    if (own.isWindow)
      api.deregisterWindow(own.communicator, own.handle);
    else
      api.deregisterMemory(own.communicator, own.handle);
}

// NCCL gives no window where it has no symmetric memory, between nodes for
// example, on all ranks alike.
CudaStatus NcclRegistrations::add(CudaCommunicator communicator,
                                  const CollectiveResources &resources,
                                  bool asWindow) {
  void *handle = nullptr;
  if (asWindow) {
    if (CudaStatus status = api.registerWindow(communicator, resources.memory,
                                               resources.bytes, handle))
      return status;
    if (handle) {
      registrations.push_back({communicator, handle, true});
      return cudaOk;
    }
  }
  if (!api.registerMemory(communicator, resources.memory, resources.bytes,
                          handle) &&
      handle)
    registrations.push_back({communicator, handle, false});
  return cudaOk;
}

} // namespace fsdpc::runtime
