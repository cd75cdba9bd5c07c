// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Communicators are nonblocking, so a rank waits for the others by asking for
// their state, with a limit of its own.
#include "runtime/cuda/nccl_communicators.h"
#include "runtime/core/failure.h"
#include "runtime/support/concat.h"

namespace fsdpc::runtime {

namespace {

// The pause between two looks at a communicator that is connecting.
constexpr double pollSeconds = 0.001;

std::string nameOf(const Job &job) { return concat("rank ", job.rank); }

// Polls, since NCCL itself waits for missing ranks without a limit. `status` is
// that of the call which began to connect.
void awaitConnection(CudaApi &api, Job &job, CudaStatus status,
                     CudaCommunicator communicator, double seconds) {
  auto began = std::chrono::steady_clock::now();
  if (!status)
    while ((status = api.communicatorState(communicator)) == cudaInProgress) {
      std::chrono::duration<double> waited =
          std::chrono::steady_clock::now() - began;
      if (seconds > 0 && waited.count() >= seconds) {
        awaitTurn(job, /*later=*/false);
        fail(machineError(
            concat(nameOf(job), ": NCCL did not connect all ", job.size,
                   " ranks within --join-timeout ", int(seconds),
                   " s; set NCCL_DEBUG=INFO to see what it waits for")));
      }
      std::this_thread::sleep_for(std::chrono::duration<double>(pollSeconds));
    }
  if (status) {
    std::string text = api.errorText(status);
    awaitTurn(job, /*later=*/true);
    fail(machineError(nameOf(job) +
                      ": NCCL cannot connect to the other ranks: " + text));
  }
}

CudaCommunicator joinRanks(CudaApi &api, Job &job, const NcclConfig &config,
                           double seconds) {
  struct {
    CudaStatus status;
    NcclId id;
  } own = {};
  if (job.rank == 0)
    own.status = api.makeNcclId(own.id);
  // The status travels with the id: a failure of rank 0 must reach the ranks
  // that would wait for it.
  std::vector<decltype(own)> all(size_t(job.size));
  job.channel[controlChannel]->allGather(&own, all.data(), sizeof own);
  if (all[0].status)
    failJob(job, runError("cannot initialize NCCL: " +
                          api.errorText(all[0].status)));
  CudaCommunicator communicator = nullptr;
  CudaStatus status =
      api.initCommunicator(communicator, job.rank, job.size, all[0].id, config);
  awaitConnection(api, job, status, communicator, seconds);
  return communicator;
}

} // namespace

// Communicators are made one after the other, in the same order on all ranks.
NcclCommunicators joinNccl(CudaApi &api, Job &job, Channel channel,
                           const NcclConfig &config,
                           const CollectiveGroups &groups, double seconds,
                           Watchdog &watchdog) {
  NcclCommunicators made;
  made.ranks = joinRanks(api, job, config, seconds);
  watchdog.watch(channel, made.ranks);
  auto split = [&](int color) {
    CudaCommunicator part = nullptr;
    CudaStatus status = api.splitCommunicator(part, made.ranks, color);
    awaitConnection(api, job, status, part, seconds);
    watchdog.watch(channel, part);
    return part;
  };
  if (groups.ranks == 0 || (channel == reduceChannel && !groups.reduces))
    return made;
  if (groups.ranks == job.size) {
    made.group = made.ranks;
    return made;
  }
  made.group = split(job.rank / groups.ranks);
  if (channel == reduceChannel)
    made.across = split(job.rank % groups.ranks);
  return made;
}

} // namespace fsdpc::runtime
