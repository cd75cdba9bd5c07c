// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// In rank order this is a pipeline of tasks: at tick t node n works on task
// t - n. A task is a piece of what one rank of each place is to have in the
// end, of each node in turn. At the end of a tick all nodes hand their sums on.
#include "runtime/comm/node_reduction.h"
#include "runtime/comm/reduce_scatter.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::runtime {

namespace {

// A piece stays in a core's cache, and takes longer to move than a message's
// latency.
constexpr int64_t pieceElements = groupPieceBytes / int64_t(sizeof(float));

} // namespace

// The sums are f32, one per element. Otherwise each of the node's ranks
// receives its part from each rank elsewhere.
bool NodeReducer::pays(int nodes, int ranksPerNode, size_t width) {
  size_t elsewhere = size_t(nodes - 1) * size_t(ranksPerNode);
  return elsewhere * width > size_t(nodes) * sizeof(float);
}

int64_t NodeReducer::tasksOf(const ReduceScatter &part) const {
  return (part.shardElements + pieceElements - 1) / pieceElements * (last + 1);
}

NodeReducer::Task NodeReducer::taskOf(const ReduceScatter &part,
                                      int64_t number) const {
  int64_t first = number / (last + 1) * pieceElements;
  return {int(number % (last + 1)), first,
          std::min(pieceElements, part.shardElements - first)};
}

// Returns what this rank's part continues, which a task of this node begins
// with.
const float *NodeReducer::startOf(const ReduceScatter &part,
                                  const Task &task) const {
  if (part.initial)
    return part.initial + task.first;
  return part.add ? part.shard + task.first : nullptr;
}

// Sums this node's values of one task, on top of what the node before sent.
void NodeReducer::sum(const ReduceScatter &part, const Task &task) {
  const float *before = incoming;
  if (own == 0 && (task.target == 0 || !startOf(part, task)))
    before = startOf(part, task);
  int64_t first = partOf(part, task.target * int64_t(near.size())) + task.first;
  near.reduceScatter({gradientAt(part, first), part.type, part.wire,
                      part.elements - first, task.length, outgoing, false,
                      before, partOf(part, 1)});
}

// Hands this node's sums to the next node, and those of the last one to the
// node whose they are; takes what this rank needs for its next task, and its
// results.
void NodeReducer::handOn(const ReduceScatter &part, int64_t tick) {
  auto bytesOf = [&](int64_t number) {
    return size_t(taskOf(part, number).length) * sizeof(float);
  };
  sends.clear();
  receives.clear();
  // The task that this node has just summed, and the one that is complete now.
  int64_t number = tick - own, finished = tick - last;
  if (isTask(part, number)) {
    int to = own == last ? taskOf(part, number).target : own + 1;
    if (to != own)
      sends.push_back({to, outgoing, bytesOf(number)});
  }
  if (own > 0 && isTask(part, number + 1))
    receives.push_back({own - 1, incoming, bytesOf(number + 1)});
  if (own < last && isTask(part, finished) &&
      taskOf(part, finished).target == own)
    receives.push_back({last, complete, bytesOf(finished)});
  far.transfer(sends, receives);
}

// Brings what a part of another node continues to the first node, which works
// on it next.
void NodeReducer::bringStarts(const ReduceScatter &part, int64_t number) {
  if (!isTask(part, number) || (!part.add && !part.initial))
    return;
  Task task = taskOf(part, number);
  size_t bytes = size_t(task.length) * sizeof(float);
  sends.clear();
  receives.clear();
  if (own == task.target && own > 0)
    sends.push_back({0, startOf(part, task), bytes});
  if (own == 0 && task.target > 0)
    receives.push_back({task.target, incoming, bytes});
  far.transfer(sends, receives);
}

void NodeReducer::makeScratch() {
  if (!scratch.empty())
    return;
  scratch.resize(3 * size_t(pieceElements));
  incoming = scratch.data();
  outgoing = incoming + pieceElements;
  complete = outgoing + pieceElements;
}

// Piece by piece. The scratch memory has a piece of the part of each node.
void NodeReducer::sumNodesFirst(const ReduceScatter &part) {
  makeScratch();
  int nodes = last + 1;
  int64_t step = std::max<int64_t>(int64_t(scratch.size()) / nodes, 1);
  for (int64_t begin = 0; begin < part.shardElements; begin += step) {
    int64_t length = std::min(step, part.shardElements - begin);
    for (int node = 0; node < nodes; ++node) {
      int64_t first = partOf(part, int64_t(node) * near.size()) + begin;
      near.reduceScatter({gradientAt(part, first), part.type, part.wire,
                          part.elements - first, length,
                          scratch.data() + node * length, false, nullptr,
                          partOf(part, 1)});
    }
    far.reduceScatter({scratch.data(), WireType::f32, WireType::f32,
                       nodes * length, length, part.shard + begin, part.add,
                       part.initial ? part.initial + begin : nullptr});
  }
}

void NodeReducer::reduceScatter(const ReduceScatter &part) {
  makeScratch();
  // A piece of the shard is written once its sum is complete: the shard may lie
  // inside the gradient, and the first node may continue it.
  int64_t tasks = tasksOf(part);
  bringStarts(part, 0);
  for (int64_t tick = 0; tick < tasks + last; ++tick) {
    if (isTask(part, tick - own))
      sum(part, taskOf(part, tick - own));
    handOn(part, tick);
    bringStarts(part, tick + 1);
    int64_t finished = tick - last;
    if (!isTask(part, finished))
      continue;
    Task task = taskOf(part, finished);
    if (task.target == own)
      memcpy(part.shard + task.first, own == last ? outgoing : complete,
             size_t(task.length) * sizeof(float));
  }
}

} // namespace fsdpc::runtime
