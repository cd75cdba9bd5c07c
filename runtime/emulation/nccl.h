// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One rank's end of an emulated NCCL communicator. Ranks are threads of a
// process or processes on a machine. They meet in shared memory that the id
// names; the name is removed as soon as all have joined, so that a crash leaves
// nothing behind. All data goes through one mailbox per ordered pair of ranks.
#pragma once

#include "runtime/cuda/api.h"
#include "runtime/emulation/faults.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace fsdpc::runtime::emulation {

/// One send or receive.
struct Transfer {
  int peer;
  const void *from; ///< null for a receive
  void *to;
  size_t bytes;
};

/// Makes an id that no other process uses.
void makeNcclId(NcclId &id);

/// Shared by the table and by enqueued work. `state` and `abort` may be called
/// on any thread; only one stream at a time may run a collective.
class NcclCommunicator {
public:
  /// Joins a communicator. Returns before the other ranks have joined.
  static CudaStatus join(const NcclId &id, int rank, int size, uint64_t seed,
                         Faults &faults,
                         std::shared_ptr<NcclCommunicator> &communicator);
  /// Joins the ranks of `parent` that give the same color. All ranks of
  /// `parent` must call it in the same order. Fails if a call of the parent is
  /// under way.
  static CudaStatus split(const std::shared_ptr<NcclCommunicator> &parent,
                          int color,
                          std::shared_ptr<NcclCommunicator> &communicator);
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator &) = delete;
  NcclCommunicator &operator=(const NcclCommunicator &) = delete;

  int rank() const { return self; }
  int size() const { return ranks; }
  /// Returns cudaInProgress until all ranks have joined, and while the ranks
  /// split, then cudaOk or an error.
  CudaStatus state();
  /// Ends what runs on the communicator, on every rank. The other ranks then
  /// have an error.
  void abort();

  /// Called on a stream's thread. They return when they are done, or once the
  /// communicator is aborted. `place` is that of `whole` in its window, which
  /// must be the same on all ranks.
  void allGather(const void *shard, void *whole, size_t bytes, uint64_t place);
  void reduceScatter(const void *whole, void *shard, size_t elements,
                     WireType type, uint64_t place);
  void allReduce(float *values, size_t elements);
  void reduce(const void *values, void *sum, size_t elements, WireType type,
              int root);
  void broadcast(void *values, size_t bytes, int root);
  void exchange(const std::vector<Transfer> &transfers);

  /// Adds a line to the file `path` when the communicator ends (README.md).
  void reportTo(std::string path) { report = std::move(path); }

  std::atomic<int> pending{0}; ///< calls enqueued and not yet done

private:
  struct Shared;
  struct Box;
  /// From 1: an empty mailbox has no label.
  enum Kind : uint64_t {
    gathering = 1,
    sharing, ///< from one rank to all others
    reducing,
    collecting, ///< on one rank
    sending,
    kinds
  };

  NcclCommunicator(uint64_t seed, Faults &faults)
      : seed(seed), faults(faults) {}
  /// Joins the ranks that meet in the shared memory `name`.
  CudaStatus meet(const std::string &name, int rank, int size);
  /// Joins the ranks of the same color, if all ranks of the parent have told
  /// theirs.
  CudaStatus finishSplit();
  static size_t sharedBytes(int ranks);
  Box &box(int from, int to);
  /// Wakes a rank that sleeps on its bell.
  void ring(int peer);
  void sleep(uint32_t bell);
  bool isAborted() const;
  /// Returns false if a fault keeps this collective from running.
  bool begin();
  void fail(CudaStatus status) { error = status; }
  /// Blocks until some rank aborts: a rank that has failed hangs, as with NCCL.
  void awaitAbort();
  bool move(Kind kind, uint64_t place, const Transfer &transfer, size_t &done);
  /// Writes to `to` the sum of this rank's values and those that it has
  /// received from the others, in the order of the seed.
  void addUp(const void *own, const std::vector<std::vector<char>> &received,
             size_t elements, WireType type, void *to) const;
  void run(Kind kind, const std::vector<Transfer> &transfers,
           uint64_t place = 0);

  int self = 0, ranks = 0;
  const uint64_t seed;
  Faults &faults;
  /// The ranks as the first communicator numbers them, for faults and reports.
  std::vector<int> members;
  /// The name of the shared memory, and whether this rank may have to remove
  /// it.
  std::string name;
  bool owesName = false;
  /// The split that makes this communicator, until all of its ranks have
  /// called.
  std::mutex splitting;
  std::shared_ptr<NcclCommunicator> parent;
  int color = 0, splitNumber = 0;
  std::atomic<int> splits{0}; ///< of this communicator, by this rank
  Shared *shared = nullptr;
  std::atomic<CudaStatus> error{cudaOk};
  std::atomic<bool> ended{false}; ///< aborted by this rank
  /// Held while a collective runs; two at once are an error of the caller.
  std::mutex busy;
  /// The bytes that this rank has sent, by kind, and where to write them.
  uint64_t sent[kinds] = {};
  std::string report;
};

} // namespace fsdpc::runtime::emulation
