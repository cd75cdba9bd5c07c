// Ranks as threads of one process. On one node they read each other's buffers
// directly. Virtual nodes (--ranks-per-node) instead use the path for several
// nodes, an all-to-all through staging memory, so that it can be tested on one
// machine.
#include "runtime/comm/failure.h"
#include "runtime/comm/reduce.h"
#include "runtime/comm/staged.h"

#include <algorithm>
#include <cstring>
#include <unistd.h>

namespace fsdpc::runtime {

namespace {

// State that the ranks of one channel share. A rank publishes its pointer, and
// the barrier makes it visible to the others.
struct Meeting {
  explicit Meeting(int ranks) : ranks(ranks), published(ranks), values(ranks) {}
  int ranks;
  FutexBarrier barrier;
  std::vector<const void *> published;
  std::vector<std::vector<double>> values;
};

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
  void allGather(const void *shard, void *whole, size_t shardBytes) override {
    meeting->published[self] = shard;
    barrier();
    char *all = static_cast<char *>(whole);
    for (int peer = 0; peer < size(); ++peer)
      if (all + peer * shardBytes != meeting->published[peer])
        memcpy(all + peer * shardBytes, meeting->published[peer], shardBytes);
    barrier(); // from here on the shards may change
  }

  // Every rank reads its part of the others' gradients and sums it in rank
  // order. The shard may lie inside the own gradient: it is the part that no
  // other rank reads.
  void reduceScatter(const ReduceScatter &part) override {
    meeting->published[self] = part.gradient;
    barrier();
    int64_t begin = self * part.shardElements;
    int64_t real = realElements(part, begin, part.shardElements);
    for (int peer = 0; peer < size(); ++peer)
      addends[peer] = {static_cast<const char *>(meeting->published[peer]) +
                           begin * wireBytes(part.type),
                       part.type};
    sumRanks(addends.data(), size(), part.wire, real, part.shard, part.add);
    if (!part.add)
      std::fill(part.shard + real, part.shard + part.shardElements, 0.0f);
    barrier(); // from here on the gradients may change
  }

  // Each rank publishes a copy, since `values` is overwritten while slower
  // ranks still add. All add in rank order and get the same bits.
  void allReduce(double *values, int count) override {
    meeting->values[self].assign(values, values + count);
    barrier();
    for (int i = 0; i < count; ++i) {
      values[i] = meeting->values[0][i];
      for (int peer = 1; peer < size(); ++peer)
        values[i] += meeting->values[peer][i];
    }
    barrier();
  }

private:
  int self;
  std::shared_ptr<Meeting> meeting;
  std::vector<Addend> addends; // of a reduceScatter; kept from call to call
};

// Ranks on several virtual nodes. It takes the path of real nodes up to the
// exchange itself, which here is a copy between threads.
class LocalExchange : public ExchangeCommunicator {
public:
  LocalExchange(int rank, std::shared_ptr<Meeting> meeting, Staging staging)
      : ExchangeCommunicator(rank, meeting->ranks, staging),
        meeting(std::move(meeting)) {}

  void barrier() override { meeting->barrier.wait(ranks); }

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
    job->abort = [](int code) {
      fflush(nullptr);
      _exit(code);
    };
    jobs.push_back(std::move(job));
  }
  for (int channel = 0; channel < channels; ++channel) {
    // One meeting per channel, since the streams run collectives side by side.
    // It lives as long as the last communicator that uses it.
    auto meeting = std::make_shared<Meeting>(ranks);
    Staging staging = Staging::of(Channel(channel), ranks);
    for (std::unique_ptr<Job> &job : jobs)
      if (onNode < ranks)
        job->channel[channel] =
            std::make_unique<LocalExchange>(job->rank, meeting, staging);
      else
        job->channel[channel] =
            std::make_unique<LocalCommunicator>(job->rank, meeting);
  }
  return jobs;
}

} // namespace fsdpc::runtime
