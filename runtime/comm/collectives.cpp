// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions work in pieces. Each rank receives its part of a piece from all
// others, folds it, and sends the result to the ranks that need it. So every
// rank folds its share, and the memory does not grow with the number of values.
#include "runtime/comm/collectives.h"
#include "runtime/numeric/fold.h"

#include <algorithm>
#include <cstring>

namespace fsdpc::runtime {

namespace {

// The most bytes that all ranks' parts of a piece may take on one rank. 256
// KiB, which a core's L2 holds.
constexpr size_t scratchBytes = size_t(1) << 18;

// Elements [begin, begin + count) of the whole array.
struct Range {
  int64_t begin, count;
};

// The messages of one collective. A rank's message to itself is a copy. At most
// one to itself at a time.
class Messages {
public:
  explicit Messages(Communicator &ranks) : ranks(ranks) {}

  void send(int peer, const void *data, size_t bytes) {
    if (peer == ranks.rank())
      own = {peer, data, bytes};
    else
      sends.push_back({peer, data, bytes});
  }
  void receive(int peer, void *data, size_t bytes) {
    if (peer == ranks.rank())
      ownPlace = data;
    else
      receives.push_back({peer, data, bytes});
  }
  // Moves all of them and forgets them.
  void run() {
    if (own.bytes && ownPlace && ownPlace != own.data)
      memcpy(ownPlace, own.data, own.bytes);
    ranks.transfer(sends, receives);
    sends.clear();
    receives.clear();
    own = {};
    ownPlace = nullptr;
  }

private:
  Communicator &ranks;
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  Outgoing own = {};
  void *ownPlace = nullptr;
};

const char *at(const void *base, size_t bytes) {
  return static_cast<const char *>(base) + bytes;
}
char *at(void *base, size_t bytes) { return static_cast<char *>(base) + bytes; }

size_t valueBytes(ValueType type) {
  constexpr const char *dtypes[] = {"f32", "bf16", "f16", "i32", "i64"};
  return size_t(dtypeBytes(dtypes[int(type)]));
}

// One reduction, piece by piece.
class Reducer {
public:
  Reducer(Communicator &ranks, ValueType type, Reduction reduction)
      : ranks(ranks), messages(ranks), type(type), reduction(reduction),
        width(valueBytes(type)), sources(size_t(ranks.size())) {}

  // Elements of one rank's part of a piece.
  int64_t partElements() const {
    return std::max<int64_t>(
        1, int64_t(scratchBytes / width / size_t(ranks.size())));
  }

  // Writes the combined values of this rank's part to `result`; part r of the
  // whole array is rank r's. `result` may lie in `values`.
  void foldParts(const void *values, const std::vector<Range> &parts,
                 void *result) {
    int self = ranks.rank();
    size_t own = size_t(parts[size_t(self)].count) * width;
    // One place per rank, this rank's own unused.
    scratch.resize(own * size_t(ranks.size()));
    for (int peer = 0; peer < ranks.size(); ++peer) {
      const Range &part = parts[size_t(peer)];
      const char *from = at(values, size_t(part.begin) * width);
      sources[size_t(peer)] = from;
      if (peer == self)
        continue;
      sources[size_t(peer)] = scratch.data() + size_t(peer) * own;
      messages.send(peer, from, size_t(part.count) * width);
      messages.receive(peer, scratch.data() + size_t(peer) * own, own);
    }
    messages.run();
    foldRanks(sources.data(), ranks.size(), parts[size_t(self)].count, type,
              reduction, result);
  }

  // Combines `count` values and leaves them with the root, or with all ranks if
  // that is -1. `result` is not used elsewhere.
  void reduceTo(int root, const void *values, void *result, int64_t count) {
    int64_t step = partElements() * ranks.size();
    for (int64_t begin = 0; begin < count; begin += step) {
      std::vector<Range> parts = cut(begin, std::min(step, count - begin));
      const Range &own = parts[size_t(ranks.rank())];
      // The fold writes to memory of its own: the caller's may hold values that
      // a peer still reads, or be null.
      folded.resize(size_t(own.count) * width);
      foldParts(values, parts, folded.data());
      for (int peer = 0; peer < ranks.size(); ++peer) {
        const Range &part = parts[size_t(peer)];
        if (root < 0 || peer == root)
          messages.send(peer, folded.data(), folded.size());
        if (root < 0 || ranks.rank() == root)
          messages.receive(peer, at(result, size_t(part.begin) * width),
                           size_t(part.count) * width);
      }
      messages.run();
    }
  }

  // Part r of `count` elements goes to rank r.
  void scatterParts(const void *values, void *result, int64_t count) {
    for (int64_t begin = 0; begin < count; begin += partElements()) {
      int64_t length = std::min(partElements(), count - begin);
      std::vector<Range> parts;
      for (int peer = 0; peer < ranks.size(); ++peer)
        parts.push_back({peer * count + begin, length});
      foldParts(values, parts, at(result, size_t(begin) * width));
    }
  }

private:
  // Nearly equal parts of a range, by rank.
  std::vector<Range> cut(int64_t begin, int64_t count) const {
    std::vector<Range> parts;
    for (int64_t rank = 0; rank < ranks.size(); ++rank) {
      int64_t from = count * rank / ranks.size();
      int64_t to = count * (rank + 1) / ranks.size();
      parts.push_back({begin + from, to - from});
    }
    return parts;
  }

  Communicator &ranks;
  Messages messages;
  const ValueType type;
  const Reduction reduction;
  const size_t width;
  std::vector<const void *> sources;
  std::vector<char> scratch, folded;
};

} // namespace

// In each round the ranks that have the bytes send them to as many others, so
// a rank has log2(ranks) peers at most.
static void broadcastByTree(Communicator &ranks, void *data, size_t bytes,
                            int root) {
  int size = ranks.size(), self = (ranks.rank() + size - root) % size;
  int distance = 1;
  for (; distance < size && !(self & distance); distance *= 2)
    ;
  if (distance < size)
    receive(ranks, data, bytes, (self - distance + root) % size);
  while (distance /= 2)
    if (self + distance < size)
      send(ranks, data, bytes, (self + distance + root) % size);
}

// The root scatters and all gather, so that it sends the bytes once, and not
// once to each rank.
void broadcast(Communicator &ranks, void *data, size_t bytes, int root) {
  if (ranks.size() > mostDirect && bytes <= mostInRounds)
    return broadcastByTree(ranks, data, bytes, root);
  size_t count = size_t(ranks.size());
  auto begin = [&](size_t rank) {
    // The first ranks take a byte more where the parts are not equal.
    return bytes / count * rank + std::min(rank, bytes % count);
  };
  auto place = [&](int rank) { return at(data, begin(size_t(rank))); };
  auto length = [&](int rank) {
    return begin(size_t(rank) + 1) - begin(size_t(rank));
  };
  int self = ranks.rank();
  Messages messages(ranks);
  for (int peer = 0; self == root && peer < ranks.size(); ++peer)
    messages.send(peer, place(peer), length(peer));
  messages.receive(root, place(self), length(self));
  messages.run();
  for (int peer = 0; peer < ranks.size(); ++peer) {
    if (peer != root)
      messages.send(peer, place(self), length(self));
    if (self != root)
      messages.receive(peer, place(peer), length(peer));
  }
  messages.run();
}

void gather(Communicator &ranks, const void *piece, void *whole, size_t bytes,
            int root) {
  Messages messages(ranks);
  messages.send(root, piece, bytes);
  for (int peer = 0; ranks.rank() == root && peer < ranks.size(); ++peer)
    messages.receive(peer, at(whole, size_t(peer) * bytes), bytes);
  messages.run();
}

void scatter(Communicator &ranks, const void *whole, void *piece, size_t bytes,
             int root) {
  Messages messages(ranks);
  for (int peer = 0; ranks.rank() == root && peer < ranks.size(); ++peer)
    messages.send(peer, at(whole, size_t(peer) * bytes), bytes);
  messages.receive(root, piece, bytes);
  messages.run();
}

void allToAll(Communicator &ranks, const void *sent, void *received,
              size_t bytes) {
  Messages messages(ranks);
  for (int peer = 0; peer < ranks.size(); ++peer) {
    messages.send(peer, at(sent, size_t(peer) * bytes), bytes);
    messages.receive(peer, at(received, size_t(peer) * bytes), bytes);
  }
  messages.run();
}

void send(Communicator &ranks, const void *data, size_t bytes, int to) {
  Outgoing message = {to, data, bytes};
  ranks.transfer({&message, 1}, {});
}

void receive(Communicator &ranks, void *data, size_t bytes, int from) {
  Incoming message = {from, data, bytes};
  ranks.transfer({}, {&message, 1});
}

void allReduce(Communicator &ranks, const void *values, void *result,
               int64_t count, ValueType type, Reduction reduction) {
  Reducer(ranks, type, reduction).reduceTo(-1, values, result, count);
}

void reduce(Communicator &ranks, const void *values, void *result,
            int64_t count, ValueType type, Reduction reduction, int root) {
  Reducer(ranks, type, reduction).reduceTo(root, values, result, count);
}

void reduceScatter(Communicator &ranks, const void *values, void *result,
                   int64_t count, ValueType type, Reduction reduction) {
  Reducer(ranks, type, reduction).scatterParts(values, result, count);
}

} // namespace fsdpc::runtime
