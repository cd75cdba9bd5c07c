// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// NCCL in the emulation: checks arguments and enqueues what nccl.h runs. As
// with NCCL, sends and receives in a group form one exchange, and communicators
// may not be used before all ranks have joined.
#include "runtime/comm/reduce_scatter.h"
#include "runtime/emulation/emulation.h"
#include "runtime/emulation/status.h"
#include "runtime/support/concat.h"

#include <functional>
#include <unistd.h>
#include <utility>

namespace fsdpc::runtime::emulation {

using Lock = std::lock_guard<std::mutex>;

namespace {

// The calls of the calling thread since groupBegin. NCCL's groups belong to the
// thread too: ncclGroupStart names no communicator.
struct Group {
  struct Exchange {
    CudaCommunicator communicator;
    CudaStream stream;
    std::vector<Transfer> transfers;
    std::vector<std::function<void(NcclCommunicator &)>> others;
  };
  int depth = 0;
  std::vector<Exchange> exchanges;

  // Returns what the group calls on this communicator and stream.
  Exchange &on(CudaCommunicator communicator, CudaStream stream) {
    for (Exchange &exchange : exchanges)
      if (exchange.communicator == communicator && exchange.stream == stream)
        return exchange;
    return exchanges.emplace_back(Exchange{communicator, stream, {}, {}});
  }
};

thread_local Group group;

// Counts a call that is enqueued or held by a graph, so that a communicator
// cannot be destroyed before its work is done.
class Pending {
public:
  explicit Pending(std::shared_ptr<NcclCommunicator> communicator)
      : held(std::move(communicator)) {
    ++held->pending;
  }
  ~Pending() { --held->pending; }
  Pending(const Pending &) = delete;
  Pending &operator=(const Pending &) = delete;
  NcclCommunicator &communicator() { return *held; }

private:
  std::shared_ptr<NcclCommunicator> held;
};

} // namespace

// The versions before and after the functions that programs ask for.
CudaStatus Emulation::ncclVersion(int &version) {
  version = faults.is(Fault::oldNccl) ? 22507 : 22809;
  return cudaOk;
}

CudaStatus Emulation::allocateShared(void *&address, size_t bytes) {
  if (faults.is(Fault::refuseShared))
    return status::refuse(status::ncclSystemError, "shared memory");
  if (CudaStatus status = allocateDevice(address, bytes))
    return status;
  Lock lock(mutex);
  shared.insert(address);
  return cudaOk;
}

CudaStatus Emulation::freeShared(void *address) {
  bool isUsed = false;
  {
    Lock lock(mutex);
    registrations.each([&](Registration &registration) {
      isUsed |= registration.memory == address;
    });
    if (isUsed || !shared.erase(address))
      return status::refuse(
          status::ncclInvalidUsage,
          "shared memory that no communicator has registered");
  }
  return freeDevice(address);
}

CudaStatus Emulation::makeNcclId(NcclId &id) {
  emulation::makeNcclId(id);
  return cudaOk;
}

// Returns as soon as this rank has joined. The caller polls communicatorState
// for the others.
CudaStatus Emulation::initCommunicator(CudaCommunicator &handle, int rank,
                                       int size, const NcclId &id,
                                       const NcclConfig &config) {
  handle = nullptr;
  if (config.maxCtas < 0 || (config.zeroCtas && faults.is(Fault::oldNccl)))
    return status::refuse(status::ncclInvalidArgument, "a configuration");
  if (CudaStatus status = refuseInCapture("initCommunicator"))
    return status;
  std::shared_ptr<NcclCommunicator> communicator;
  if (CudaStatus status = NcclCommunicator::join(id, rank, size, settings.seed,
                                                 faults, communicator))
    return status;
  communicator->reportTo(settings.volumes);
  Lock lock(mutex);
  handle = communicators.add(std::move(communicator));
  return cudaOk;
}

// NCCL may deadlock if calls are under way meanwhile.
CudaStatus Emulation::splitCommunicator(CudaCommunicator &handle,
                                        CudaCommunicator parent, int color) {
  handle = nullptr;
  if (CudaStatus status = refuseInCapture("splitCommunicator"))
    return status;
  Lock lock(mutex);
  std::shared_ptr<NcclCommunicator> whole = communicators.find(parent);
  if (!whole || whole->state() != cudaOk || whole->pending > 0)
    return status::refuse(status::ncclInvalidUsage,
                          "a communicator to split must be alive and idle");
  std::shared_ptr<NcclCommunicator> communicator;
  if (CudaStatus status = NcclCommunicator::split(whole, color, communicator))
    return status;
  communicator->reportTo(settings.volumes);
  handle = communicators.add(std::move(communicator));
  return cudaOk;
}

CudaStatus Emulation::communicatorState(CudaCommunicator handle) {
  Lock lock(mutex);
  std::shared_ptr<NcclCommunicator> communicator = communicators.find(handle);
  return communicator
             ? communicator->state()
             : status::refuse(status::ncclInvalidArgument, "a communicator");
}

// Removes the handle at once, although work may still hold the object: its
// calls return early.
CudaStatus Emulation::abortCommunicator(CudaCommunicator handle) {
  Lock lock(mutex);
  std::shared_ptr<NcclCommunicator> communicator = communicators.remove(handle);
  if (!communicator)
    return status::refuse(status::ncclInvalidArgument, "a communicator");
  communicator->abort();
  forgetRegistrations(*communicator);
  return cudaOk;
}

CudaStatus Emulation::destroyCommunicator(CudaCommunicator handle) {
  if (faults.strikes(Fault::endless, settings.rank))
    for (;;)
      pause();
  Lock lock(mutex);
  std::shared_ptr<NcclCommunicator> communicator = communicators.find(handle);
  if (!communicator)
    return status::refuse(status::ncclInvalidArgument, "a communicator");
  // NCCL does not end while a graph holds one of its calls.
  if (communicator->pending > 0)
    return status::refuse(
        status::ncclInvalidUsage,
        "a communicator is destroyed while it has pending work");
  communicators.remove(handle);
  forgetRegistrations(*communicator);
  return cudaOk;
}

CudaStatus Emulation::registerMemory(CudaCommunicator handle, void *address,
                                     size_t bytes, void *&registration) {
  registration = nullptr;
  if (CudaStatus status = refuseInCapture("registerMemory"))
    return status;
  return addRegistration(handle, address, bytes, /*isWindow=*/false,
                         registration);
}

CudaStatus Emulation::addRegistration(CudaCommunicator handle,
                                      const void *address, size_t bytes,
                                      bool isWindow, void *&registration) {
  // The whole range, since NCCL maps it for the peers.
  if (CudaStatus status = checkBuffer(address, bytes, "a registration"))
    return status;
  Lock lock(mutex);
  std::shared_ptr<NcclCommunicator> communicator = communicators.find(handle);
  if (!communicator)
    return status::refuse(status::ncclInvalidArgument, "a communicator");
  if (isWindow && !shared.count(address))
    return status::refuse(status::ncclInvalidArgument,
                          "a window of memory that is not shared");
  registration = registrations.add(std::make_shared<Registration>(
      Registration{communicator, address, bytes, isWindow}));
  return cudaOk;
}

CudaStatus Emulation::deregisterMemory(CudaCommunicator handle,
                                       void *registration) {
  return registration ? removeRegistration(handle, registration, false)
                      : cudaOk;
}

CudaStatus Emulation::removeRegistration(CudaCommunicator handle,
                                         const void *registration,
                                         bool isWindow) {
  Lock lock(mutex);
  std::shared_ptr<Registration> known = registrations.find(registration);
  // A registration belongs to one communicator.
  if (!known || known->communicator.get() != handle ||
      known->isWindow != isWindow)
    return status::refuse(status::ncclInvalidArgument, "a registration");
  registrations.remove(registration);
  return cudaOk;
}

CudaStatus Emulation::registerWindow(CudaCommunicator handle, void *address,
                                     size_t bytes, void *&window) {
  window = nullptr;
  if (CudaStatus status = refuseInCapture("registerWindow"))
    return status;
  if (faults.is(Fault::oldNccl))
    return status::refuse(status::ncclInvalidUsage, "windows of an old NCCL");
  if (faults.is(Fault::refuseWindows))
    return cudaOk;
  return addRegistration(handle, address, bytes, /*isWindow=*/true, window);
}

CudaStatus Emulation::deregisterWindow(CudaCommunicator handle, void *window) {
  return removeRegistration(handle, window, /*isWindow=*/true);
}

uint64_t Emulation::placeInWindow(CudaCommunicator handle,
                                  const void *address) {
  uint64_t place = ~uint64_t(0);
  Lock lock(mutex);
  registrations.each([&](Registration &own) {
    auto *begin = static_cast<const char *>(own.memory);
    auto *at = static_cast<const char *>(address);
    if (own.isWindow && own.communicator.get() == handle && at >= begin &&
        at < begin + own.bytes)
      place = uint64_t(at - begin);
  });
  return place;
}

// In two steps, since a list must not change while it is visited.
void Emulation::forgetRegistrations(const NcclCommunicator &communicator) {
  std::vector<const void *> gone;
  registrations.each([&](Registration &registration) {
    if (registration.communicator.get() == &communicator)
      gone.push_back(&registration);
  });
  for (const void *registration : gone)
    registrations.remove(registration);
}

CudaStatus Emulation::collective(CudaCommunicator handle, CudaStream stream,
                                 std::function<void(NcclCommunicator &)> work) {
  std::shared_ptr<NcclCommunicator> communicator;
  {
    // Not held while the work is submitted, which takes it again.
    Lock lock(mutex);
    communicator = communicators.find(handle);
  }
  if (!communicator)
    return status::refuse(status::ncclInvalidArgument, "a communicator");
  if (CudaStatus status = communicator->state())
    return status == cudaInProgress
               ? status::refuse(
                     status::ncclInvalidUsage,
                     "a communicator is used before all ranks have joined")
               : status;
  if (group.depth > 0) {
    group.on(handle, stream).others.push_back(std::move(work));
    return cudaOk;
  }
  // Shared, because work is a std::function and may be copied; the count falls
  // when the last copy is gone.
  auto pending = std::make_shared<Pending>(communicator);
  return submit(stream, /*bound=*/true,
                [pending, work = std::move(work)](Chance &) {
                  work(pending->communicator());
                });
}

// Checks the full extent of both buffers on the current device: one shard, and
// one shard per rank.
CudaStatus Emulation::checkCollective(CudaCommunicator handle,
                                      const void *shard, const void *whole,
                                      size_t shardBytes) {
  // An unknown communicator is refused by collective(), which follows.
  size_t size = 0;
  {
    Lock lock(mutex);
    if (std::shared_ptr<NcclCommunicator> found = communicators.find(handle))
      size = size_t(found->size());
  }
  if (CudaStatus status = checkBuffer(shard, shardBytes, "a shard"))
    return status;
  return checkBuffer(whole, shardBytes * size, "a whole");
}

CudaStatus Emulation::allGather(CudaCommunicator handle, const void *shard,
                                void *whole, size_t bytes, CudaStream stream) {
  if (CudaStatus status = checkCollective(handle, shard, whole, bytes))
    return status;
  uint64_t place = placeInWindow(handle, whole);
  return collective(handle, stream, [=](NcclCommunicator &communicator) {
    communicator.allGather(shard, whole, bytes, place);
  });
}

CudaStatus Emulation::reduceScatter(CudaCommunicator handle, const void *whole,
                                    void *shard, size_t elements, WireType type,
                                    CudaStream stream) {
  if (CudaStatus status =
          checkCollective(handle, shard, whole, elements * elementBytes(type)))
    return status;
  uint64_t place = placeInWindow(handle, whole);
  return collective(handle, stream, [=](NcclCommunicator &communicator) {
    communicator.reduceScatter(whole, shard, elements, type, place);
  });
}

CudaStatus Emulation::allReduce(CudaCommunicator handle, float *values,
                                size_t elements, CudaStream stream) {
  if (CudaStatus status =
          checkBuffer(values, elements * sizeof(float), "an all-reduce"))
    return status;
  return collective(handle, stream, [=](NcclCommunicator &communicator) {
    communicator.allReduce(values, elements);
  });
}

CudaStatus Emulation::checkRank(CudaCommunicator handle, int rank) {
  Lock lock(mutex);
  std::shared_ptr<NcclCommunicator> found = communicators.find(handle);
  return found && rank >= 0 && rank < found->size()
             ? cudaOk
             : status::refuse(status::ncclInvalidArgument,
                              concat("rank ", rank, " of a communicator"));
}

// Only the root has memory for the sum.
CudaStatus Emulation::reduce(CudaCommunicator handle, const void *values,
                             void *sum, size_t elements, WireType type,
                             int root, CudaStream stream) {
  size_t bytes = elements * elementBytes(type);
  if (CudaStatus status = checkRank(handle, root))
    return status;
  if (CudaStatus status = checkBuffer(values, bytes, "a reduction"))
    return status;
  if (CudaStatus status = sum ? checkBuffer(sum, bytes, "a sum") : cudaOk)
    return status;
  return collective(handle, stream, [=](NcclCommunicator &communicator) {
    communicator.reduce(values, sum, elements, type, root);
  });
}

CudaStatus Emulation::broadcast(CudaCommunicator handle, void *values,
                                size_t bytes, int root, CudaStream stream) {
  if (CudaStatus status = checkRank(handle, root))
    return status;
  if (CudaStatus status = checkBuffer(values, bytes, "a broadcast"))
    return status;
  return collective(handle, stream, [=](NcclCommunicator &communicator) {
    communicator.broadcast(values, bytes, root);
  });
}

CudaStatus Emulation::groupBegin() {
  ++group.depth;
  return cudaOk;
}

// Groups nest, and only the end of the outermost one enqueues.
CudaStatus Emulation::groupEnd() {
  if (group.depth == 0)
    return status::refuse(status::ncclInvalidUsage,
                          "no group has been started");
  if (--group.depth > 0)
    return cudaOk;
  // All exchanges are enqueued even if one fails: other ranks may wait for
  // them. The first error is returned.
  CudaStatus first = cudaOk;
  for (Group::Exchange &exchange : std::exchange(group.exchanges, {})) {
    // Copied, since the arguments may be evaluated after the move.
    auto on = exchange.communicator;
    auto stream = exchange.stream;
    CudaStatus status =
        collective(on, stream,
                   [all = std::move(exchange)](NcclCommunicator &communicator) {
                     if (!all.transfers.empty())
                       communicator.exchange(all.transfers);
                     for (const auto &call : all.others)
                       call(communicator);
                   });
    if (first == cudaOk)
      first = status;
  }
  return first;
}

CudaStatus Emulation::transfer(CudaCommunicator handle,
                               const Transfer &transfer, CudaStream stream) {
  if (CudaStatus status = checkRank(handle, transfer.peer))
    return status;
  // Outside a group a send or receive is an exchange of its own.
  if (group.depth == 0)
    return collective(handle, stream, [=](NcclCommunicator &communicator) {
      communicator.exchange({transfer});
    });
  // Transfers of one communicator and stream run at the same time, in one
  // exchange.
  group.on(handle, stream).transfers.push_back(transfer);
  return cudaOk;
}

CudaStatus Emulation::send(CudaCommunicator handle, const void *from,
                           size_t bytes, int peer, CudaStream stream) {
  if (CudaStatus status = checkBuffer(from, bytes, "a send"))
    return status;
  return transfer(handle, {peer, from, nullptr, bytes}, stream);
}

CudaStatus Emulation::receive(CudaCommunicator handle, void *to, size_t bytes,
                              int peer, CudaStream stream) {
  if (CudaStatus status = checkBuffer(to, bytes, "a receive"))
    return status;
  return transfer(handle, {peer, nullptr, to, bytes}, stream);
}

} // namespace fsdpc::runtime::emulation
