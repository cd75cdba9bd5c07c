// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Communicators: the collectives of one rank on one channel, with one interface
// for all backends (local: ranks as threads of a process; mpi; tcp).
//
// Every rank must make the same sequence of calls on a channel. A call blocks
// the thread of the calling stream. The thread sleeps and never spins longer
// than 20 µs, since the cores belong to the compute threads. Sums add the
// ranks' values in rank order; a continued sum adds them rank by rank to the
// earlier result. So the bits depend neither on the backend nor on the number
// of ranks that share a step's microbatches. A failure ends the job
// (failure.h).
//
// A communicator can be split into groups of its ranks (runtime/comm/groups.h
// does so for layouts that are cut over groups). Every backend moves bytes
// between pairs of ranks through one function, transfer().
#pragma once

#include "runtime/abi/staging.h"
#include "runtime/numeric/wire_type.h"
#include "runtime/support/status.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// One rank's operand of a reduce-scatter: its gradient of one layout.
struct ReduceScatter {
  const void *gradient; ///< of the full layout, `elements` long
  WireType type;        ///< of `gradient`
  WireType
      wire; ///< values are rounded to it before the sum, then widened to f32
  int64_t elements; ///< without padding, which counts as zero
  int64_t shardElements;
  float *shard; ///< this rank's result, shardElements long; may lie at its
                ///< place inside `gradient` if that is f32
  bool add; ///< true: the sum continues from `shard`, which then lies outside
            ///< `gradient`; false: it overwrites `shard`
  /// Sums of the ranks that come before this communicator's, shardElements
  /// long, from which the sum continues; null: it begins with `shard` if `add`
  /// is set, else with rank 0's values. Not together with `add`.
  const float *initial = nullptr;
  /// Elements from one rank's part of `gradient` to the next rank's, if that is
  /// more than shardElements: the call then reduces a range of each part.
  int64_t stride = 0;
};

/// One rank's gradient of a layout that `owner` has whole. On the owner `sum`
/// is the result, `elements` long; it may be `gradient` if that is f32.
struct OwnedGradient {
  const void *gradient;
  WireType type; ///< of `gradient`
  int64_t elements;
  int owner;
  float *sum;
};

/// Values that `owner` has and all other ranks receive.
struct OwnedValues {
  void *values;
  size_t bytes;
  int owner;
};

/// A message to or from a rank of the communicator.
struct Outgoing {
  int peer;
  const void *data;
  size_t bytes;
};
struct Incoming {
  int peer;
  void *data;
  size_t bytes;
};

/// Owned by the rank's Job. One thread at a time may call it, except that
/// different channels may be used at the same time. All calls but rank(),
/// size(), allGatherInPlace() and transfer() are collective and return when
/// this rank's part is done.
class Communicator {
public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void barrier() = 0;
  /// Writes rank r's shard to whole[r * shardBytes …] for every r. `shard` may
  /// already lie at its place in `whole`. With a `stride` rank r's place is
  /// whole[r * stride …].
  void allGather(const void *shard, void *whole, size_t shardBytes,
                 size_t stride = 0);
  /// The same for shards that lie side by side in memory of all ranks: there is
  /// nothing to do but to count. Needs no counterpart.
  void allGatherInPlace(size_t shardBytes) { countSent(shardBytes); }
  /// Sums all ranks' gradients and leaves rank r with part r of the sum.
  void reduceScatter(const ReduceScatter &part);
  /// Lets later calls of reduceScatter() sum the ranks of each node first, and
  /// then the nodes, which sends less to other nodes and has other bits. All
  /// ranks must call it. Has no effect unless nodes have
  /// equally many ranks, one node's after another's, which over TCP can share
  /// memory.
  virtual void sumNodesFirst() {}
  /// Sums all ranks' gradients on their owners, rounded to `wire` first, as
  /// reduceScatter does. With `add` the sums continue from what the owners
  /// have, which then lies outside of the gradients. All ranks give the same
  /// list.
  void reduceToOwners(std::span<const OwnedGradient> gradients, WireType wire,
                      bool add);
  /// Sends the values of each owner to all other ranks. All give the same list.
  void shareOwned(std::span<const OwnedValues> values);
  /// Sums `count` values over the ranks, in place. Every rank gets the same
  /// bits.
  void allReduce(double *values, int count);

  /// Sends and receives all these messages, in any order, and returns when they
  /// are done. At most one message per call to each peer and one from each, and
  /// none to itself. Each needs its counterpart of the same size in a call of
  /// the peer; ranks that have no message need not call.
  void transfer(std::span<const Outgoing> sends,
                std::span<const Incoming> receives);

  /// Makes one communicator for the ranks that give each color, with their
  /// order kept. Call it before the streams start. The caller owns the result
  /// and must destroy it before the job. It belongs to the same channel: one
  /// thread at a time may call either it or this communicator, and all ranks
  /// must call them in the same order.
  virtual std::unique_ptr<Communicator> split(int color) = 0;

  /// Returns the bytes that this rank has handed to others in all these calls,
  /// in whatever way (a peer that reads them counts too).
  uint64_t sentBytes() const { return sent; }
  /// Returns those that have gone to other nodes.
  virtual uint64_t sentToNodes() const { return sentFar; }

protected:
  /// Says on which node each rank is, so that bytes to other nodes are counted.
  template <typename Nodes> void setNodes(const Nodes &nodes) {
    isFar.clear();
    for (const auto &node : nodes)
      isFar.push_back(node != nodes[size_t(rank())]);
  }
  bool goesFar(int peer) const { return !isFar.empty() && isFar[size_t(peer)]; }
  size_t farRanks() const {
    return size_t(std::count(isFar.begin(), isFar.end(), true));
  }

  /// Do the work of the calls of the same names, which also count the bytes.
  virtual void doAllGather(const void *shard, void *whole, size_t bytes,
                           size_t stride) = 0;
  virtual void doReduceScatter(const ReduceScatter &part) = 0;
  virtual void doReduceToOwners(std::span<const OwnedGradient> gradients,
                                WireType wire, bool add) = 0;
  virtual void doShareOwned(std::span<const OwnedValues> values) = 0;
  virtual void doAllReduce(double *values, int count) = 0;
  virtual void doTransfer(std::span<const Outgoing> sends,
                          std::span<const Incoming> receives) = 0;

private:
  /// Counts `bytes` that each other rank gets.
  void countSent(size_t bytes) {
    sent += bytes * uint64_t(size() - 1);
    sentFar += bytes * farRanks();
  }
  void countMessage(int peer, size_t bytes) {
    sent += bytes;
    sentFar += goesFar(peer) ? bytes : 0;
  }

  uint64_t sent = 0, sentFar = 0;
  std::vector<bool> isFar; ///< by rank: on another node; empty: none
};

/// One rank's view of the job: its place, its channels, and how to end it.
struct Job {
  /// State shared by the channels, destroyed after them. With mpi its
  /// destructor leaves the job, together with the other ranks.
  std::shared_ptr<void> session;
  int rank = 0, size = 1;
  int ranksOnNode = 1, rankOnNode = 0; ///< virtual nodes with --ranks-per-node
  int ranksOnHost = 1, rankOnHost = 0; ///< of the machine
  bool sharesProcess = false;          ///< ranks are threads of one process
  std::string launcher;  ///< "none", "local", "mpirun", "torchrun", "srun"
  std::string transport; ///< of the channels: "local", "mpi", "tcp"
  std::unique_ptr<Communicator> channel[channels];
  /// Ends every rank of the job with exit code `code`. May be called on any
  /// thread.
  std::function<void(ExitCode code)> abort;
};

/// Makes `ranks` jobs whose ranks are threads of this process. With
/// ranksPerNode > 0 they form virtual nodes of that size, and use the path for
/// several nodes between them; 0 puts all on one node.
std::vector<std::unique_ptr<Job>> makeLocalJobs(int ranks, int ranksPerNode);
/// Joins the job that mpirun started this process in. Loads the embedded
/// plugin, so that a program needs libmpi only under mpirun. Afterwards a rank
/// that is silent for `silence` seconds (0: no limit) ends the job with one
/// line that names it.
Result<std::unique_ptr<Job>> joinMpi(int ranksPerNode, double silence);

/// Sets rankOnNode and ranksOnNode for virtual nodes of `ranksPerNode` ranks
/// (0: one node per machine), from rank, size, rankOnHost and ranksOnHost.
void cutIntoNodes(Job &job, int ranksPerNode);

} // namespace fsdpc::runtime
