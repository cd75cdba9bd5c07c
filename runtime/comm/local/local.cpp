// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as threads of one process. On one node they read each other's buffers
// directly. Virtual nodes (--ranks-per-node) instead use the path for several
// nodes, an all-to-all through staging memory, so that it can be tested on one
// machine.
#include "runtime/comm/failure.h"
#include "runtime/comm/groups.h"
#include "runtime/comm/local/mailboxes.h"
#include "runtime/comm/nodes.h"
#include "runtime/comm/reduce_scatter.h"
#include "runtime/comm/staged.h"
#include "runtime/numeric/streaming.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace fsdpc::runtime {

namespace {

// State that the ranks of one communicator share. A rank publishes its pointer,
// and the barrier makes it visible to the others. `nodes` are the virtual nodes
// by rank. Lives as long as the last communicator that uses it.
struct Meeting {
  Meeting(Channel channel, std::vector<int> onNodes)
      : ranks(int(onNodes.size())), channel(channel), nodes(std::move(onNodes)),
        grid(gridOf(std::span<const int>(nodes))), mailboxes(ranks),
        published(size_t(ranks)), values(size_t(ranks)) {
    if (channel == controlChannel)
      grid = {};
    if (!grid.isDeep())
      return;
    // The ranks of each node, and those with one place in all nodes.
    for (int node = 0; node < grid.nodes; ++node)
      near.push_back(std::make_shared<Meeting>(
          channel, std::vector<int>(size_t(grid.ranks), node)));
    std::vector<int> every;
    for (int node = 0; node < grid.nodes; ++node)
      every.push_back(node);
    for (int place = 0; place < grid.ranks; ++place)
      far.push_back(std::make_shared<Meeting>(channel, every));
  }
  int ranks;
  Channel channel;
  std::vector<int> nodes;
  NodeGrid grid;
  std::vector<std::shared_ptr<Meeting>> near, far; // if the grid is deep
  FutexBarrier barrier;
  Mailboxes mailboxes;
  std::vector<const void *> published;
  std::vector<std::vector<double>> values;
};

std::unique_ptr<Communicator>
makeCommunicator(int rank, std::shared_ptr<Meeting> meeting);

// Communicator::split for rank `self` of `whole`, whose ranks share `meeting`.
// The first rank of each group makes the state that the group shares.
std::unique_ptr<Communicator> splitMeeting(Communicator &whole,
                                           Meeting &meeting, int color) {
  Group group = groupOf(whole, color);
  std::shared_ptr<Meeting> shared;
  if (group.rank == 0) {
    std::vector<int> nodes;
    for (int member : group.members)
      nodes.push_back(meeting.nodes[size_t(member)]);
    shared = std::make_shared<Meeting>(meeting.channel, std::move(nodes));
  }
  meeting.published[size_t(whole.rank())] = &shared;
  whole.barrier();
  auto *first = static_cast<const std::shared_ptr<Meeting> *>(
      meeting.published[size_t(group.members[0])]);
  auto made = makeCommunicator(group.rank, *first);
  whole.barrier(); // from here on the first rank's pointer may go
  return made;
}

// All ranks on one (virtual) node. Pointers of other threads are valid here, so
// no data is staged.
class LocalCommunicator : public Communicator {
public:
  LocalCommunicator(int rank, std::shared_ptr<Meeting> meeting)
      : self(rank), meeting(std::move(meeting)),
        addends(size_t(this->meeting->ranks)) {}

  int rank() const override { return self; }
  int size() const override { return meeting->ranks; }
  void barrier() override { meeting->barrier.wait(meeting->ranks); }

  // Every rank copies from the others' buffers; no staging is needed.
  void doAllGather(const void *shard, void *whole, size_t bytes,
                   size_t stride) override {
    meeting->published[self] = shard;
    barrier();
    char *all = static_cast<char *>(whole);
    for (int peer = 0; peer < size(); ++peer)
      copyResult(meeting->published[peer], bytes, all + peer * stride,
                 size() * bytes);
    barrier(); // from here on the shards may change
  }

  // Every rank reads its part of the others' gradients and sums it in rank
  // order. The shard may lie inside the own gradient: it is the part that no
  // other rank reads.
  void doReduceScatter(const ReduceScatter &part) override {
    meeting->published[self] = part.gradient;
    barrier();
    int64_t begin = partOf(part, self);
    int64_t real = realElements(part, begin, part.shardElements);
    for (int peer = 0; peer < size(); ++peer)
      addends[peer] = {static_cast<const char *>(meeting->published[peer]) +
                           begin * elementBytes(part.type),
                       part.type};
    sumRanks(addends.data(), size(), part.wire, real, part.shard, part.add,
             part.initial, resultBytes(part));
    sumPadding(part, real, part.shardElements);
    barrier(); // from here on the gradients may change
  }

  // An owner reads all ranks' gradients where they lie.
  void doReduceToOwners(std::span<const OwnedGradient> gradients, WireType wire,
                        bool add) override {
    meeting->published[self] = gradients.data();
    barrier();
    for (size_t i = 0; i < gradients.size(); ++i) {
      const OwnedGradient &own = gradients[i];
      if (own.owner != self)
        continue;
      for (int peer = 0; peer < size(); ++peer)
        addends[peer] = {published<OwnedGradient>(peer)[i].gradient, own.type};
      sumRanks(addends.data(), size(), wire, own.elements, own.sum, add);
    }
    barrier(); // from here on the gradients may change
  }

  void doShareOwned(std::span<const OwnedValues> values) override {
    meeting->published[self] = values.data();
    barrier();
    for (size_t i = 0; i < values.size(); ++i)
      if (const OwnedValues &own = values[i]; own.owner != self)
        copyResult(published<OwnedValues>(own.owner)[i].values, own.bytes,
                   own.values, own.bytes);
    barrier(); // from here on the values may change
  }

  // Each rank publishes a copy, since `values` is overwritten while slower
  // ranks still add. All add in rank order and get the same bits.
  void doAllReduce(double *values, int count) override {
    meeting->values[self].assign(values, values + count);
    barrier();
    for (int i = 0; i < count; ++i) {
      values[i] = meeting->values[0][i];
      for (int peer = 1; peer < size(); ++peer)
        values[i] += meeting->values[peer][i];
    }
    barrier();
  }

  void doTransfer(std::span<const Outgoing> sends,
                  std::span<const Incoming> receives) override {
    meeting->mailboxes.transfer(self, sends, receives);
  }
  std::unique_ptr<Communicator> split(int color) override {
    return splitMeeting(*this, *meeting, color);
  }

private:
  template <typename T> const T *published(int peer) const {
    return static_cast<const T *>(meeting->published[size_t(peer)]);
  }

  int self;
  std::shared_ptr<Meeting> meeting;
  std::vector<Addend> addends; // of a reduction; kept from call to call
};

// Ranks on several virtual nodes. It takes the path of real nodes up to the
// exchange itself, which here is a copy between threads.
class LocalExchange : public ExchangeCommunicator {
public:
  LocalExchange(int rank, std::shared_ptr<Meeting> meeting)
      : ExchangeCommunicator(rank, meeting->ranks,
                             Staging::of(meeting->channel, meeting->ranks)),
        meeting(std::move(meeting)) {
    setNodes(this->meeting->nodes);
    useSlowLink();
  }

  void barrier() override { meeting->barrier.wait(ranks); }
  void doTransfer(std::span<const Outgoing> sends,
                  std::span<const Incoming> receives) override {
    passLink(sends);
    meeting->mailboxes.transfer(self, sends, receives);
  }
  std::unique_ptr<Communicator> split(int color) override {
    return splitMeeting(*this, *meeting, color);
  }

protected:
  void exchange(const char *sent, char *received, size_t bytes) override {
    readAll(sent, [&](int peer, const char *from) {
      memcpy(received + peer * bytes, from + self * bytes, bytes);
    });
  }

  void gather(const char *piece, char *whole, size_t bytes,
              size_t stride) override {
    readAll(piece, [&](int peer, const char *from) {
      if (whole + peer * stride != from)
        memcpy(whole + peer * stride, from, bytes);
    });
  }

private:
  // Calls body(peer, pointer) with what each rank published. The second barrier
  // keeps all of it unchanged until every rank is done.
  template <typename Body> void readAll(const char *own, Body &&body) {
    meeting->published[self] = own;
    barrier();
    for (int peer = 0; peer < ranks; ++peer)
      body(peer, static_cast<const char *>(meeting->published[peer]));
    barrier();
  }

  std::shared_ptr<Meeting> meeting;
};

// Takes the path for several nodes unless all ranks are on one.
std::unique_ptr<Communicator>
makeCommunicator(int rank, std::shared_ptr<Meeting> meeting) {
  const std::vector<int> &nodes = meeting->nodes;
  if (std::all_of(nodes.begin(), nodes.end(),
                  [&](int node) { return node == nodes[0]; }))
    return std::make_unique<LocalCommunicator>(rank, std::move(meeting));
  NodeGrid grid = meeting->grid;
  auto near =
      grid.isDeep() ? meeting->near[size_t(grid.nodeOf(rank))] : nullptr;
  auto far = grid.isDeep() ? meeting->far[size_t(grid.placeOf(rank))] : nullptr;
  auto flat = std::make_unique<LocalExchange>(rank, std::move(meeting));
  if (!grid.isDeep())
    return flat;
  return std::make_unique<NodeCommunicator>(
      std::move(flat), makeCommunicator(grid.placeOf(rank), near),
      makeCommunicator(grid.nodeOf(rank), far));
}

} // namespace

// Assumes that ranks are numbered node by node, as launchers do by default.
void cutIntoNodes(Job &job, int ranksPerNode) {
  job.ranksOnNode = job.ranksOnHost;
  job.rankOnNode = job.rankOnHost;
  if (ranksPerNode <= 0 || ranksPerNode >= job.ranksOnHost)
    return;
  int first = job.rank / ranksPerNode * ranksPerNode;
  job.ranksOnNode = std::min(ranksPerNode, job.size - first);
  job.rankOnNode = job.rank - first;
}

std::vector<std::unique_ptr<Job>> makeLocalJobs(int ranks, int ranksPerNode) {
  int onNode = ranksPerNode > 0 ? std::min(ranksPerNode, ranks) : ranks;
  std::vector<std::unique_ptr<Job>> jobs;
  for (int rank = 0; rank < ranks; ++rank) {
    auto job = std::make_unique<Job>();
    job->rank = rank;
    job->size = ranks;
    job->ranksOnNode = std::min(onNode, ranks - rank / onNode * onNode);
    job->rankOnNode = rank % onNode;
    job->ranksOnHost = ranks;
    job->rankOnHost = rank;
    job->sharesProcess = ranks > 1;
    job->launcher = ranks > 1 ? "local" : "none";
    job->transport = "local";
    // One process has all ranks, so ending it ends the job.
    job->abort = [](ExitCode code) {
      fflush(nullptr);
      _exit(int(code));
    };
    jobs.push_back(std::move(job));
  }
  std::vector<int> nodes;
  for (int rank = 0; rank < ranks; ++rank)
    nodes.push_back(rank / onNode);
  for (int channel = 0; channel < channels; ++channel) {
    // One meeting per channel, since the streams run collectives side by side.
    auto meeting = std::make_shared<Meeting>(Channel(channel), nodes);
    for (std::unique_ptr<Job> &job : jobs)
      job->channel[channel] = makeCommunicator(job->rank, meeting);
  }
  return jobs;
}

} // namespace fsdpc::runtime
