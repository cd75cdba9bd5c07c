// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives over mailboxes in shared memory. A rank moves every piece that a
// mailbox lets it move and then sleeps on its own futex ("bell"), which its
// peers ring when they have filled or emptied a mailbox. Each piece is labelled
// with its collective, so that ranks that call different ones get an error
// instead of wrong data.
#include "runtime/emulation/nccl.h"
#include "runtime/comm/reduce_scatter.h"
#include "runtime/emulation/status.h"
#include "runtime/numeric/bfloat16.h"
#include "runtime/numeric/float16.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/futex.h>
#include <numeric>
#include <random>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fsdpc::runtime::emulation {

constexpr int mostRanks = 64;
constexpr int mostSplits = 4; // of one communicator
// Longer transfers take several turns.
constexpr size_t piece = size_t(128) << 10; // capacity of a mailbox

// Zeroed memory is a valid communicator that nobody has joined.
struct alignas(64) NcclCommunicator::Shared {
  // 0 until the first rank sets it; `aborted` is the rank that did, plus 1.
  std::atomic<int> size, joined, aborted;
  std::atomic<bool> present[mostRanks];
  // Counts the events at the mailboxes of each rank, which sleeps on its count.
  std::atomic<uint32_t> bells[mostRanks];
  // The color of each rank in each split, plus 1; 0 until it has called.
  std::atomic<int> colors[mostSplits][mostRanks];
};

// The sender owns it while it is empty, the receiver while it is full.
struct alignas(64) NcclCommunicator::Box {
  std::atomic<bool> full;
  uint64_t call;  // the collective it belongs to: kind and bytes
  uint64_t bytes; // in the mailbox
  char data[piece];
};

void makeNcclId(NcclId &id) {
  std::random_device random;
  id.fill(0);
  snprintf(id.data(), id.size(), "/fsdpc-nccl-%d-%08x%08x", int(getpid()),
           random(), random());
}

// One box per ordered pair, those of a rank with itself included and never
// touched.
size_t NcclCommunicator::sharedBytes(int ranks) {
  return sizeof(Shared) + sizeof(Box) * ranks * ranks;
}

CudaStatus
NcclCommunicator::join(const NcclId &id, int rank, int size, uint64_t seed,
                       Faults &faults,
                       std::shared_ptr<NcclCommunicator> &communicator) {
  std::shared_ptr<NcclCommunicator> made(new NcclCommunicator(seed, faults));
  made->members.resize(size_t(std::max(size, 0)));
  std::iota(made->members.begin(), made->members.end(), 0);
  if (CudaStatus status = made->meet(
          std::string(id.data(), strnlen(id.data(), id.size())), rank, size))
    return status;
  communicator = std::move(made);
  return cudaOk;
}

CudaStatus NcclCommunicator::meet(const std::string &place, int rank,
                                  int size) {
  if (size < 1 || size > mostRanks || rank < 0 || rank >= size)
    return status::refuse(status::ncclInvalidArgument,
                          concat("rank ", rank, " of ", size));
  self = rank, ranks = size, name = place;
  // Whoever comes first creates the memory; the others find it. Its size is the
  // same for all, whatever number of ranks they believe in: a smaller one would
  // take pages from those who have joined. Pages that nobody touches take no
  // memory.
  int file = shm_open(name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0)
    return status::refuse(status::ncclSystemError,
                          "cannot open '" + name + "'");
  void *memory = MAP_FAILED;
  if (ftruncate(file, off_t(sharedBytes(mostRanks))) == 0)
    memory = mmap(nullptr, sharedBytes(size), PROT_READ | PROT_WRITE,
                  MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED)
    return status::refuse(status::ncclSystemError, "cannot map '" + name + "'");
  shared = static_cast<Shared *>(memory);
  int before = 0;
  // The first rank sets the size, and the others must agree with it. No rank
  // may join twice.
  if ((!shared->size.compare_exchange_strong(before, size) && before != size) ||
      shared->present[rank].exchange(true))
    return status::refuse(status::ncclInvalidArgument,
                          concat("rank ", rank, " of ", size,
                                 " does not match the ranks that have joined"));
  owesName = true;
  // The mappings outlive the name.
  if (++shared->joined == size)
    shm_unlink(name.c_str());
  return cudaOk;
}

CudaStatus
NcclCommunicator::split(const std::shared_ptr<NcclCommunicator> &parent,
                        int color,
                        std::shared_ptr<NcclCommunicator> &communicator) {
  if (color < 0 || parent->splits == mostSplits)
    return status::refuse(
        status::ncclInvalidArgument,
        concat("split ", parent->splits.load(), " with the color ", color));
  std::shared_ptr<NcclCommunicator> made(
      new NcclCommunicator(parent->seed, parent->faults));
  made->parent = parent;
  made->color = color;
  made->splitNumber = parent->splits;
  parent->shared->colors[parent->splits++][parent->self] = color + 1;
  communicator = std::move(made);
  return cudaOk;
}

// All ranks of a color find the same members, and so the same place to meet.
CudaStatus NcclCommunicator::finishSplit() {
  if (CudaStatus status = parent->state())
    return status;
  int place = 0;
  for (int rank = 0; rank < parent->ranks; ++rank) {
    if (parent->shared->colors[splitNumber][rank] != color + 1)
      continue;
    if (rank == parent->self)
      place = int(members.size());
    members.push_back(parent->members[size_t(rank)]);
  }
  std::string where = concat(parent->name, "-", splitNumber, "-", color);
  parent = nullptr;
  CudaStatus status = meet(where, place, int(members.size()));
  if (status)
    error = status;
  return status;
}

// The name is still there only if some rank never joined.
NcclCommunicator::~NcclCommunicator() {
  if (!shared)
    return;
  if (FILE *file = report.empty() ? nullptr : fopen(report.c_str(), "a")) {
    std::string all;
    for (int member : members)
      all += concat(all.empty() ? "" : ",", member);
    // One write, since other ranks write to the file too.
    fprintf(file, "%d %s %llu %llu %llu\n", members[size_t(self)], all.c_str(),
            static_cast<unsigned long long>(sent[gathering] + sent[sharing]),
            static_cast<unsigned long long>(sent[reducing] + sent[collecting]),
            static_cast<unsigned long long>(sent[sending]));
    fclose(file);
  }
  if (owesName && shared->joined < ranks)
    shm_unlink(name.c_str());
  munmap(shared, sharedBytes(ranks));
}

// The mailboxes follow `Shared`, in order of sender and receiver.
NcclCommunicator::Box &NcclCommunicator::box(int from, int to) {
  return reinterpret_cast<Box *>(shared + 1)[from * ranks + to];
}

// An error of this rank counts before that of another.
CudaStatus NcclCommunicator::state() {
  {
    std::lock_guard<std::mutex> lock(splitting);
    if (parent)
      if (CudaStatus status = finishSplit())
        return status;
  }
  if (error != cudaOk)
    return status::refuse(error, concat("on rank ", self));
  if (shared->aborted)
    return status::refuse(
        status::ncclRemoteError,
        concat("rank ", shared->aborted - 1, " aborted the communicator"));
  for (int split = 0; split < splits; ++split)
    for (int rank = 0; rank < ranks; ++rank)
      if (!shared->colors[split][rank])
        return cudaInProgress;
  return shared->joined < ranks ? cudaInProgress : cudaOk;
}

bool NcclCommunicator::isAborted() const { return ended || shared->aborted; }

// Counts first and wakes then, so a rank that is about to sleep sees the new
// count.
void NcclCommunicator::ring(int peer) {
  ++shared->bells[peer];
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(&shared->bells[peer]),
          FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Returns at once if the bell has rung since `bell` was read, so no event is
// lost. The second bounds the wait for what rings no bell, such as an error
// that another thread has set.
void NcclCommunicator::sleep(uint32_t bell) {
  timespec second = {1, 0};
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(&shared->bells[self]),
          FUTEX_WAIT, bell, &second, nullptr, 0);
}

void NcclCommunicator::abort() {
  ended = true;
  if (!shared) // its split is under way
    return;
  // Rank numbers are stored plus 1, since 0 means that nobody has aborted.
  int nobody = 0;
  shared->aborted.compare_exchange_strong(nobody, self + 1);
  for (int peer = 0; peer < ranks; ++peer)
    ring(peer);
}

void NcclCommunicator::awaitAbort() {
  for (;;) {
    uint32_t bell = shared->bells[self];
    if (isAborted())
      return;
    sleep(bell);
  }
}

// Both faults hang until the abort, but `nccl` also leaves an error that
// state() returns.
bool NcclCommunicator::begin() {
  int rank = members[size_t(self)];
  bool struck = faults.strikes(Fault::nccl, rank);
  if (struck)
    fail(status::ncclSystemError);
  if (!struck && !faults.strikes(Fault::silent, rank))
    return true;
  awaitAbort();
  return false;
}

// Moves the next piece of a transfer if its mailbox allows. Returns true if so.
// If the piece belongs to another collective, the communicator gets an error.
bool NcclCommunicator::move(Kind kind, uint64_t place, const Transfer &transfer,
                            size_t &done) {
  bool sends = transfer.from;
  Box &mail = sends ? box(self, transfer.peer) : box(transfer.peer, self);
  // A sender needs an empty mailbox, a receiver a full one.
  if (mail.full == sends)
    return false;
  // Both ends of a transfer know its kind and size, and the place in their
  // windows, so both make the same label.
  constexpr uint64_t prime = 1099511628211u;
  uint64_t call = uint64_t(kind) << 56 |
                  ((transfer.bytes ^ place * prime) & ~(uint64_t(255) << 56));
  if (sends) {
    mail.call = call;
    mail.bytes = std::min(piece, transfer.bytes - done);
    memcpy(mail.data, static_cast<const char *>(transfer.from) + done,
           mail.bytes);
    sent[kind] += mail.bytes;
  } else {
    if (mail.call != call || mail.bytes > transfer.bytes - done) {
      fail(status::ncclInvalidUsage);
      return false;
    }
    memcpy(static_cast<char *>(transfer.to) + done, mail.data, mail.bytes);
  }
  done += mail.bytes;
  // Last, because it hands the mailbox to the other side.
  mail.full = sends;
  ring(transfer.peer);
  return true;
}

void NcclCommunicator::run(Kind kind, const std::vector<Transfer> &transfers,
                           uint64_t place) {
  std::unique_lock<std::mutex> alone(busy, std::try_to_lock);
  if (!alone.owns_lock()) {
    fail(status::ncclInvalidUsage); // used by two streams at once
    awaitAbort();
    return;
  }
  std::vector<size_t> done(transfers.size());
  for (;;) {
    // Read before the mailboxes are: what happens after this wakes the rank.
    uint32_t bell = shared->bells[self];
    if (isAborted())
      return;
    if (error != cudaOk) {
      awaitAbort();
      return;
    }
    // One pass over all transfers. Without progress the rank sleeps until a
    // peer has moved something.
    bool moved = false, left = false;
    // Transfers in one direction with one peer run in order.
    bool held[2][mostRanks] = {};
    for (size_t i = 0; i < transfers.size(); ++i) {
      const Transfer &transfer = transfers[i];
      if (done[i] == transfer.bytes)
        continue;
      left = true;
      bool &hold = held[transfer.from != nullptr][transfer.peer];
      if (!hold)
        moved |= move(kind, place, transfer, done[i]);
      hold = true;
    }
    if (!left)
      return;
    if (!moved && error == cudaOk)
      sleep(bell);
  }
}

void NcclCommunicator::exchange(const std::vector<Transfer> &transfers) {
  if (begin())
    run(sending, transfers);
}

void NcclCommunicator::allGather(const void *shard, void *whole, size_t bytes,
                                 uint64_t place) {
  if (!begin())
    return;
  auto part = [&](int rank) {
    return static_cast<char *>(whole) + rank * bytes;
  };
  // memmove, because the shard may overlap its place.
  if (part(self) != shard)
    memmove(part(self), shard, bytes);
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < ranks; ++peer)
    if (peer != self) {
      transfers.push_back({peer, part(self), nullptr, bytes});
      transfers.push_back({peer, nullptr, part(peer), bytes});
    }
  run(gathering, transfers, place);
}

template <typename T>
static void sum(const std::vector<const void *> &parts, size_t elements,
                void *to) {
  // Rounded after every addition, as on a ring of ranks.
  std::vector<T> total(elements);
  memcpy(total.data(), parts[0], elements * sizeof(T));
  for (size_t part = 1; part < parts.size(); ++part)
    for (size_t i = 0; i < elements; ++i)
      total[i] = narrow<T>(widen(total[i]) +
                           widen(static_cast<const T *>(parts[part])[i]));
  memcpy(to, total.data(), elements * sizeof(T));
}

void NcclCommunicator::addUp(const void *own,
                             const std::vector<std::vector<char>> &received,
                             size_t elements, WireType type, void *to) const {
  // NCCL's order is unspecified, so each seed begins with another rank.
  std::vector<const void *> parts;
  for (int i = 0; i < ranks; ++i) {
    // Seed 0 adds in rank order on every rank; another seed begins at another
    // rank for each shard.
    int peer = int((seed + uint64_t(seed ? self : 0) + i) % uint64_t(ranks));
    parts.push_back(peer == self ? own : received[size_t(peer)].data());
  }
  if (type == WireType::f32)
    sum<float>(parts, elements, to);
  else if (type == WireType::bf16)
    sum<BFloat16>(parts, elements, to);
  else
    sum<Float16>(parts, elements, to);
}

void NcclCommunicator::reduceScatter(const void *whole, void *shard,
                                     size_t elements, WireType type,
                                     uint64_t place) {
  if (!begin())
    return;
  size_t bytes = elements * elementBytes(type);
  auto part = [&](int rank) {
    return static_cast<const char *>(whole) + rank * bytes;
  };
  // The shard may lie inside `whole`, so nothing is summed before everything
  // has been sent.
  std::vector<std::vector<char>> received(ranks);
  std::vector<Transfer> transfers;
  for (int peer = 0; peer < ranks; ++peer)
    if (peer != self) {
      received[peer].resize(bytes);
      transfers.push_back({peer, part(peer), nullptr, bytes});
      transfers.push_back({peer, nullptr, received[peer].data(), bytes});
    }
  run(reducing, transfers, place);
  if (!isAborted())
    addUp(part(self), received, elements, type, shard);
}

// Each rank sums a part and sends it to all others, so that all have the same
// bits. The last part takes what is left.
void NcclCommunicator::allReduce(float *values, size_t elements) {
  if (!begin())
    return;
  auto first = [&](int rank) { return elements * size_t(rank) / ranks; };
  auto count = [&](int rank) { return first(rank + 1) - first(rank); };
  std::vector<std::vector<char>> received(ranks);
  std::vector<Transfer> parts, sums;
  size_t own = count(self) * sizeof(float);
  for (int peer = 0; peer < ranks; ++peer)
    if (peer != self) {
      size_t others = count(peer) * sizeof(float);
      received[peer].resize(own);
      parts.push_back({peer, values + first(peer), nullptr, others});
      parts.push_back({peer, nullptr, received[peer].data(), own});
      sums.push_back({peer, values + first(self), nullptr, own});
      sums.push_back({peer, nullptr, values + first(peer), others});
    }
  run(reducing, parts);
  if (isAborted())
    return;
  addUp(values + first(self), received, count(self), WireType::f32,
        values + first(self));
  run(reducing, sums);
}

void NcclCommunicator::reduce(const void *values, void *sum, size_t elements,
                              WireType type, int root) {
  if (!begin())
    return;
  size_t bytes = elements * elementBytes(type);
  std::vector<std::vector<char>> received(ranks);
  std::vector<Transfer> transfers;
  if (self != root)
    transfers.push_back({root, values, nullptr, bytes});
  for (int peer = 0; self == root && peer < ranks; ++peer)
    if (peer != self) {
      received[peer].resize(bytes);
      transfers.push_back({peer, nullptr, received[peer].data(), bytes});
    }
  run(collecting, transfers);
  if (self == root && !isAborted())
    addUp(values, received, elements, type, sum);
}

void NcclCommunicator::broadcast(void *values, size_t bytes, int root) {
  if (!begin())
    return;
  std::vector<Transfer> transfers;
  if (self != root)
    transfers.push_back({root, nullptr, values, bytes});
  for (int peer = 0; self == root && peer < ranks; ++peer)
    if (peer != self)
      transfers.push_back({peer, values, nullptr, bytes});
  run(sharing, transfers);
}

} // namespace fsdpc::runtime::emulation
