// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts the bytes that a rank sends, in one place for all backends. Backends
// may move a value in different ways, but another rank receives the same bytes
// of it.
#include "runtime/comm/communicator.h"

#include "runtime/comm/owned.h"
#include "runtime/comm/reduce_scatter.h"

namespace fsdpc::runtime {

void Communicator::allGather(const void *shard, void *whole, size_t shardBytes,
                             size_t stride) {
  countSent(shardBytes);
  doAllGather(shard, whole, shardBytes, stride ? stride : shardBytes);
}

void Communicator::reduceScatter(const ReduceScatter &part) {
  countSent(size_t(part.shardElements) * elementBytes(handedOver(part)));
  doReduceScatter(part);
}

void Communicator::reduceToOwners(std::span<const OwnedGradient> gradients,
                                  WireType wire, bool add) {
  for (const OwnedGradient &part : gradients)
    if (part.owner != rank())
      countMessage(part.owner, bytesOf(part, wire));
  doReduceToOwners(gradients, wire, add);
}

void Communicator::shareOwned(std::span<const OwnedValues> values) {
  for (const OwnedValues &part : values)
    if (part.owner == rank())
      countSent(part.bytes);
  doShareOwned(values);
}

void Communicator::allReduce(double *values, int count) {
  countSent(size_t(count) * sizeof(double));
  doAllReduce(values, count);
}

void Communicator::transfer(std::span<const Outgoing> sends,
                            std::span<const Incoming> receives) {
  for (const Outgoing &message : sends)
    countMessage(message.peer, message.bytes);
  doTransfer(sends, receives);
}

} // namespace fsdpc::runtime
