// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/nodes.h"
#include "runtime/comm/reduce_scatter.h"

#include <algorithm>

namespace fsdpc::runtime {

namespace {

// Bytes that a rank gathers at a time. They stay in a core's cache, and take
// longer to move than a message's latency.
constexpr size_t piece = size_t(1) << 19;

} // namespace

NodeCommunicator::NodeCommunicator(std::unique_ptr<Communicator> flat,
                                   std::unique_ptr<Communicator> near,
                                   std::unique_ptr<Communicator> far)
    : flat(std::move(flat)), near(std::move(near)), far(std::move(far)),
      reducer(*this->near, *this->far) {}

// Piece by piece, so that what came from other nodes still is in the caches
// when it is handed on.
void NodeCommunicator::doAllGather(const void *shard, void *whole, size_t bytes,
                                   size_t stride) {
  size_t node = stride * size_t(near->size());
  auto *own = static_cast<const char *>(shard);
  for (size_t begin = 0; begin < bytes; begin += piece) {
    size_t length = std::min(piece, bytes - begin);
    char *all = static_cast<char *>(whole) + begin;
    char *place = all + size_t(near->rank()) * stride;
    far->allGather(own + begin, place, length, node);
    for (size_t from = 0; from < size_t(far->size()); ++from)
      near->allGather(place + from * node, all + from * node, length, stride);
  }
}

void NodeCommunicator::doReduceScatter(const ReduceScatter &part) {
  if (sumsNodesFirst)
    reducer.sumNodesFirst(part);
  else if (NodeReducer::pays(far->size(), near->size(),
                             elementBytes(handedOver(part))))
    reducer.reduceScatter(part);
  else
    flat->reduceScatter(part);
}

void NodeCommunicator::doReduceToOwners(
    std::span<const OwnedGradient> gradients, WireType wire, bool add) {
  flat->reduceToOwners(gradients, wire, add);
}

void NodeCommunicator::doShareOwned(std::span<const OwnedValues> values) {
  flat->shareOwned(values);
}

void NodeCommunicator::doAllReduce(double *values, int count) {
  flat->allReduce(values, count);
}

void NodeCommunicator::doTransfer(std::span<const Outgoing> sends,
                                  std::span<const Incoming> receives) {
  flat->transfer(sends, receives);
}

} // namespace fsdpc::runtime
