// NCCL in the emulation: checks arguments and enqueues what nccl.h runs. As
// with NCCL, sends and receives in a group form one exchange, and communicators
// may not be used before all ranks have joined.
#include "runtime/emulation/emulation.h"
#include "runtime/emulation/status.h"

#include <functional>
#include <utility>

namespace fsdpc::runtime::emulation {

using Lock = std::lock_guard<std::mutex>;

namespace {

// The sends and receives of the calling thread since groupBegin. NCCL's groups
// belong to the thread too: ncclGroupStart names no communicator.
struct Group {
  struct Exchange {
    CudaCommunicator communicator;
    CudaStream stream;
    std::vector<Transfer> transfers;
  };
  int depth = 0;
  std::vector<Exchange> exchanges;
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

CudaStatus Emulation::makeNcclId(NcclId &id) {
  emulation::makeNcclId(id);
  return cudaOk;
}

// Returns as soon as this rank has joined. The caller polls communicatorState
// for the others.
CudaStatus Emulation::initCommunicator(CudaCommunicator &handle, int rank,
                                       int size, const NcclId &id) {
  handle = nullptr;
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
  // The whole range, since NCCL maps it for the peers.
  if (CudaStatus status = checkBuffer(address, bytes, "a registration"))
    return status;
  Lock lock(mutex);
  std::shared_ptr<NcclCommunicator> communicator = communicators.find(handle);
  if (!communicator)
    return status::refuse(status::ncclInvalidArgument, "a communicator");
  registration = registrations.add(std::make_shared<Registration>(
      Registration{communicator, address, bytes}));
  return cudaOk;
}

CudaStatus Emulation::deregisterMemory(CudaCommunicator handle,
                                       void *registration) {
  if (!registration)
    return cudaOk;
  Lock lock(mutex);
  std::shared_ptr<Registration> known = registrations.find(registration);
  // A registration belongs to one communicator.
  if (!known || known->communicator.get() != handle)
    return status::refuse(status::ncclInvalidArgument, "a registration");
  registrations.remove(registration);
  return cudaOk;
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
  return collective(handle, stream, [=](NcclCommunicator &communicator) {
    communicator.allGather(shard, whole, bytes);
  });
}

CudaStatus Emulation::reduceScatter(CudaCommunicator handle, const void *whole,
                                    void *shard, size_t elements, WireType type,
                                    CudaStream stream) {
  if (CudaStatus status = checkCollective(
          handle, shard, whole, elements * (type == WireType::f32 ? 4 : 2)))
    return status;
  return collective(handle, stream, [=](NcclCommunicator &communicator) {
    communicator.reduceScatter(whole, shard, elements, type);
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
    CudaStatus status = collective(exchange.communicator, exchange.stream,
                                   [transfers = std::move(exchange.transfers)](
                                       NcclCommunicator &communicator) {
                                     communicator.exchange(transfers);
                                   });
    if (first == cudaOk)
      first = status;
  }
  return first;
}

CudaStatus Emulation::transfer(CudaCommunicator handle,
                               const Transfer &transfer, CudaStream stream) {
  {
    Lock lock(mutex);
    std::shared_ptr<NcclCommunicator> communicator = communicators.find(handle);
    if (!communicator || transfer.peer < 0 ||
        transfer.peer >= communicator->size())
      return status::refuse(status::ncclInvalidArgument,
                            "rank " + std::to_string(transfer.peer) +
                                " of a communicator");
  }
  // Outside a group a send or receive is an exchange of its own.
  if (group.depth == 0)
    return collective(handle, stream, [=](NcclCommunicator &communicator) {
      communicator.exchange({transfer});
    });
  // Transfers of one communicator and stream run at the same time, in one
  // exchange.
  for (Group::Exchange &exchange : group.exchanges)
    if (exchange.communicator == handle && exchange.stream == stream) {
      exchange.transfers.push_back(transfer);
      return cudaOk;
    }
  group.exchanges.push_back({handle, stream, {transfer}});
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
