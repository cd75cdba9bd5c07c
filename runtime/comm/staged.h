// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives in pieces through staging memory, for ranks that cannot read each
// other's buffers. WindowCommunicator serves ranks on one node: each writes to
// shared memory and reads what the others wrote. ExchangeCommunicator serves
// ranks on several nodes: an all-to-all, then a local sum. Both add in rank
// order, with the same arithmetic (reduce.h).
#pragma once

#include "runtime/abi/staging.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/futex_barrier.h"
#include "runtime/comm/reduce_scatter.h"
#include "runtime/comm/slow_link.h"

#include <optional>

namespace fsdpc::runtime {

/// The reduce-scatter that both share. A piece consists of one segment per
/// rank; segment r holds what rank r is to add up.
class StagedCommunicator : public Communicator {
public:
  int rank() const override { return self; }
  int size() const override { return ranks; }
  void doReduceScatter(const ReduceScatter &part) override;
  void doReduceToOwners(std::span<const OwnedGradient> gradients, WireType wire,
                        bool add) override;

protected:
  StagedCommunicator(int rank, int ranks, Staging staging)
      : self(rank), ranks(ranks), staging(staging), runs(ranks), sources(ranks),
        addends(ranks), lengths(ranks) {}

  /// Returns where this rank writes the segment for `peer` of the next piece.
  virtual char *outgoing(int peer, size_t segment) = 0;
  /// Makes the pieces of all ranks readable. sources[r] is set to the segment
  /// that rank r wrote for this rank.
  virtual void trade(size_t segment, const void **sources) = 0;
  /// The same where only the first lengths[r] bytes of the segments for rank r
  /// have content.
  virtual void trade(size_t segment, std::span<const size_t> lengths,
                     const void **sources) = 0;

  int self, ranks;
  Staging staging;
  /// Bytes by owner of what it owns in a collective. A member, as are those
  /// below, so that a step allocates nothing.
  std::vector<size_t> runs;

private:
  /// Per rank, for the current piece.
  std::vector<const void *> sources;
  std::vector<Addend> addends;
  std::vector<size_t> lengths;
};

/// Ranks on one node. windows[r] is rank r's window, windowBytes() long. It
/// begins with one page, whose first words are the barrier in rank 0's window.
/// The caller owns the memory, which must outlive the communicator.
class WindowCommunicator : public StagedCommunicator {
public:
  WindowCommunicator(int rank, std::vector<char *> windows, Staging staging);
  void barrier() override;
  void doAllGather(const void *shard, void *whole, size_t bytes,
                   size_t stride) override;
  void doAllReduce(double *values, int count) override;
  void doShareOwned(std::span<const OwnedValues> values) override;

protected:
  char *outgoing(int peer, size_t segment) override;
  void trade(size_t segment, const void **sources) override;
  void trade(size_t segment, std::span<const size_t> lengths,
             const void **sources) override;

private:
  char *stage(int rank) {
    return windows[rank] + Staging::header + half * staging.half;
  }

  std::vector<char *> windows;
  FutexBarrier *meeting;
  /// Pieces alternate between the two halves. A half is written again only
  /// after the barrier of the next piece, when every rank has read it. So one
  /// barrier per piece is enough.
  int half = 0;
};

/// Ranks on several nodes: an all-to-all and an all-gather over messages
/// between pairs of ranks, or better ones that a backend has.
class ExchangeCommunicator : public StagedCommunicator {
public:
  ~ExchangeCommunicator() override;
  void barrier() override;
  void doAllGather(const void *shard, void *whole, size_t bytes,
                   size_t stride) override;
  void doAllReduce(double *values, int count) override;
  void doShareOwned(std::span<const OwnedValues> values) override;

protected:
  ExchangeCommunicator(int rank, int ranks, Staging staging);
  /// Sends what goes to ranks of other nodes (setNodes) over a slow link, if
  /// there is to be one.
  void useSlowLink() { link = SlowLink::fromEnvironment(); }
  /// Waits until the link has taken these messages.
  void passLink(std::span<const Outgoing> messages);
  /// All-to-all: received[r * bytes …] is what rank r has at sent[self * bytes
  /// …]. Undefined for r = self.
  virtual void exchange(const char *sent, char *received, size_t bytes);
  /// Writes rank r's piece to whole[r * stride …]. This rank's own may already
  /// be there.
  virtual void gather(const char *piece, char *whole, size_t bytes,
                      size_t stride);

  char *outgoing(int peer, size_t segment) override;
  void trade(size_t segment, const void **sources) override;
  void trade(size_t segment, std::span<const size_t> lengths,
             const void **sources) override;

private:
  void passLink(size_t bytes); ///< to each rank
  /// Returns the next values of an owner that go in one message, from where its
  /// cursor is, and moves that.
  std::span<char> nextOwned(std::span<const OwnedValues> values, int owner);
  void gatherPieces(const void *shard, void *whole, size_t shardBytes,
                    size_t stride);

  std::optional<SlowLink> link;
  std::vector<double> summands; ///< of allReduce, all ranks'; grows once
  char *sent, *received;        ///< staging.half bytes each
  struct Cursor {
    size_t index = 0, done = 0; ///< of the values, and in bytes
  };
  std::vector<Cursor> cursors; ///< by owner
  std::vector<Outgoing> sends; ///< kept from call to call, as is `receives`
  std::vector<Incoming> receives;
};

} // namespace fsdpc::runtime
