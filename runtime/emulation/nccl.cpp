// Collectives over mailboxes in shared memory. A rank moves every piece that a
// mailbox lets it move and then sleeps on its own futex ("bell"), which its
// peers ring when they have filled or emptied a mailbox. Each piece is labelled
// with its collective, so that ranks that call different ones get an error
// instead of wrong data.
#include "runtime/emulation/nccl.h"
#include "runtime/comm/bfloat16.h"
#include "runtime/emulation/status.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/futex.h>
#include <random>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace fsdpc::runtime::emulation {

constexpr int mostRanks = 64;
// Longer transfers take several turns.
constexpr size_t piece = size_t(128) << 10; // capacity of a mailbox

// Zeroed memory is a valid communicator that nobody has joined.
struct alignas(64) NcclCommunicator::Shared {
  // 0 until the first rank sets it; `aborted` is the rank that did, plus 1.
  std::atomic<int> size, joined, aborted;
  std::atomic<bool> present[mostRanks];
  // Counts the events at the mailboxes of each rank, which sleeps on its count.
  std::atomic<uint32_t> bells[mostRanks];
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
  if (size < 1 || size > mostRanks || rank < 0 || rank >= size)
    return status::refuse(status::ncclInvalidArgument,
                          "rank " + std::to_string(rank) + " of " +
                              std::to_string(size));
  std::shared_ptr<NcclCommunicator> made(
      new NcclCommunicator(rank, size, seed, faults));
  made->name.assign(id.data(), strnlen(id.data(), id.size()));
  // Whoever comes first creates the memory; the others find it. Its size is the
  // same for all, whatever number of ranks they believe in: a smaller one would
  // take pages from those who have joined. Pages that nobody touches take no
  // memory.
  int file = shm_open(made->name.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0)
    return status::refuse(status::ncclSystemError,
                          "cannot open '" + made->name + "'");
  void *memory = MAP_FAILED;
  if (ftruncate(file, off_t(sharedBytes(mostRanks))) == 0)
    memory = mmap(nullptr, sharedBytes(size), PROT_READ | PROT_WRITE,
                  MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED)
    return status::refuse(status::ncclSystemError,
                          "cannot map '" + made->name + "'");
  Shared *shared = made->shared = static_cast<Shared *>(memory);
  int before = 0;
  // The first rank sets the size, and the others must agree with it. No rank
  // may join twice.
  if ((!shared->size.compare_exchange_strong(before, size) && before != size) ||
      shared->present[rank].exchange(true)) {
    made->name.clear(); // the name belongs to the others
    return status::refuse(status::ncclInvalidArgument,
                          "rank " + std::to_string(rank) + " of " +
                              std::to_string(size) +
                              " does not match the ranks that have joined");
  }
  // The mappings outlive the name.
  if (++shared->joined == size)
    shm_unlink(made->name.c_str());
  communicator = std::move(made);
  return cudaOk;
}

// The name is still there only if some rank never joined.
NcclCommunicator::~NcclCommunicator() {
  if (!shared)
    return;
  if (FILE *file = report.empty() ? nullptr : fopen(report.c_str(), "a")) {
    // One write, since other ranks write to the file too.
    fprintf(file, "%d %llu %llu %llu\n", self,
            static_cast<unsigned long long>(sent[gathering]),
            static_cast<unsigned long long>(sent[reducing]),
            static_cast<unsigned long long>(sent[sending]));
    fclose(file);
  }
  if (!name.empty() && shared->joined < ranks)
    shm_unlink(name.c_str());
  munmap(shared, sharedBytes(ranks));
}

// The mailboxes follow `Shared`, in order of sender and receiver.
NcclCommunicator::Box &NcclCommunicator::box(int from, int to) {
  return reinterpret_cast<Box *>(shared + 1)[from * ranks + to];
}

// An error of this rank counts before that of another.
CudaStatus NcclCommunicator::state() const {
  if (error != cudaOk)
    return status::refuse(error, "on rank " + std::to_string(self));
  if (shared->aborted)
    return status::refuse(status::ncclRemoteError,
                          "rank " + std::to_string(shared->aborted - 1) +
                              " aborted the communicator");
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
  bool struck = faults.strikes(Fault::nccl, self);
  if (struck)
    fail(status::ncclSystemError);
  if (!struck && !faults.strikes(Fault::silent, self))
    return true;
  awaitAbort();
  return false;
}

// Moves the next piece of a transfer if its mailbox allows. Returns true if so.
// If the piece belongs to another collective, the communicator gets an error.
bool NcclCommunicator::move(Kind kind, const Transfer &transfer, size_t &done) {
  bool sends = transfer.from;
  Box &mail = sends ? box(self, transfer.peer) : box(transfer.peer, self);
  // A sender needs an empty mailbox, a receiver a full one.
  if (mail.full == sends)
    return false;
  // Both ends of a transfer know its kind and size, so both make the same
  // label.
  uint64_t call = uint64_t(kind) << 56 | transfer.bytes;
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

void NcclCommunicator::run(Kind kind, const std::vector<Transfer> &transfers) {
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
        moved |= move(kind, transfer, done[i]);
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

void NcclCommunicator::allGather(const void *shard, void *whole, size_t bytes) {
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
  run(gathering, transfers);
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

void NcclCommunicator::reduceScatter(const void *whole, void *shard,
                                     size_t elements, WireType type) {
  if (!begin())
    return;
  size_t bytes = elements * (type == WireType::f32 ? 4 : 2);
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
  run(reducing, transfers);
  if (isAborted())
    return;
  // NCCL's order is unspecified, so each seed begins with another rank.
  std::vector<const void *> parts;
  for (int i = 0; i < ranks; ++i) {
    // Seed 0 adds in rank order on every rank; another seed begins at another
    // rank for each shard.
    int peer = int((seed + uint64_t(seed ? self : 0) + i) % uint64_t(ranks));
    parts.push_back(peer == self ? part(self) : received[peer].data());
  }
  if (type == WireType::f32)
    sum<float>(parts, elements, shard);
  else
    sum<BFloat16>(parts, elements, shard);
}

} // namespace fsdpc::runtime::emulation
