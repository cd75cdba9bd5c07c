// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Messages between ranks over their connections. Each begins with a header that
// names the communicator, the operation, its number and its size, so that ranks
// that disagree about what comes next are detected instead of waiting forever.
// All messages of a transfer progress together, in whatever order the network
// allows: no rank waits to send before another has received.
#include "runtime/comm/tcp/tcp_channel.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/groups.h"
#include "runtime/comm/nodes.h"
#include "runtime/comm/shared_memory.h"
#include "runtime/comm/staged.h"
#include "runtime/support/concat.h"
#include "runtime/support/diagnostics.h"

#include <algorithm>
#include <cstring>
#include <poll.h>
#include <unistd.h>

namespace fsdpc::runtime {

namespace {

// The kinds of transfer. The ranks must agree on the kind: a collective of the
// training loop, or a plain transfer.
enum class Operation : uint64_t { transfer, barrier, gather, exchange };

// Sent as it lies in memory: all ranks run the same executable.
struct Header {
  uint64_t communicator = 0;
  Operation operation = Operation::transfer;
  uint64_t number = 0; // of the message between these ranks
  uint64_t bytes = 0;
};

// A message under way. `data` is only read from if the flow sends.
struct Flow {
  bool sends;
  int peer; // rank of the communicator
  Header header;
  char *data;
  size_t bytes, done = 0; // of header and data together; if it receives

  // The bytes that are left of the header, and of the data.
  std::array<iovec, 2> rest() {
    size_t said = std::min(done, sizeof header);
    size_t moved = done - said;
    return {
        iovec{reinterpret_cast<char *>(&header) + said, sizeof header - said},
        iovec{data + moved, bytes - moved}};
  }
};

// `members` are the ranks of the job by the communicator's ranks. All
// communicators of a channel share its links, which are by rank of the job.
class TcpChannel : public ExchangeCommunicator {
public:
  /// `nodes` are those of the members.
  TcpChannel(int rank, Channel which, std::vector<int> members,
             std::vector<int> nodes, Links &all, TcpSession &session,
             uint64_t id)
      : ExchangeCommunicator(rank, int(members.size()),
                             Staging::of(which, int(members.size()))),
        which(which), members(std::move(members)), nodes(std::move(nodes)),
        all(all), session(session), id(id), sent(size_t(ranks)),
        received(size_t(ranks)) {
    setNodes(this->nodes);
  }

  void barrier() override {
    operation = Operation::barrier;
    ExchangeCommunicator::barrier();
    operation = Operation::transfer;
  }
  void doTransfer(std::span<const Outgoing> sends,
                  std::span<const Incoming> receives) override;
  Channel channel() const { return which; }
  NodeGrid grid() const { return gridOf(std::span<const int>(nodes)); }
  std::unique_ptr<Communicator> split(int color) override;
  /// The ranks that give a color, without windows.
  std::unique_ptr<TcpChannel> part(int color);

protected:
  void gather(const char *piece, char *whole, size_t bytes,
              size_t stride) override {
    operation = Operation::gather;
    if (ranks > mostDirect && bytes <= mostInRounds)
      gatherInRounds(piece, whole, bytes, stride);
    else
      ExchangeCommunicator::gather(piece, whole, bytes, stride);
    operation = Operation::transfer;
  }
  void exchange(const char *from, char *to, size_t bytes) override {
    operation = Operation::exchange;
    ExchangeCommunicator::exchange(from, to, bytes);
    operation = Operation::transfer;
  }

private:
  Header headerOf(uint64_t number, size_t bytes) const {
    return {id, operation, number, bytes};
  }
  Link &linkTo(int peer) const { return all.at(which, members[size_t(peer)]); }
  bool isDone(const Flow &flow) const {
    return flow.sends ? linkTo(flow.peer).isPushed()
                      : flow.done == sizeof(Header) + flow.bytes;
  }
  void gatherInRounds(const char *piece, char *whole, size_t bytes,
                      size_t stride);
  bool progress(Flow &flow);
  void check(const Flow &flow) const;
  void sleep();

  const Channel which;
  const std::vector<int> members, nodes;
  Links &all;
  TcpSession &session;
  const uint64_t id;
  uint64_t splits = 0;
  std::vector<uint64_t> sent, received;      // messages by peer
  Operation operation = Operation::transfer; // under way
  // Belongs to the transfer under way; kept, so that a step allocates nothing.
  std::vector<Flow> flows;
  std::vector<pollfd> entries;
  std::vector<char> pieces; // of gatherInRounds; grows once
};

// Each round doubles the pieces that a rank has, beginning with its own: it
// receives those of the ranks after them, as many as it has. Each piece reaches
// each rank once, and a rank has log2(ranks) messages and peers each way
// instead of one per rank (Bruck et al., "Efficient algorithms for all-to-all
// communications in multiport message-passing systems", 1997).
void TcpChannel::gatherInRounds(const char *piece, char *whole, size_t bytes,
                                size_t stride) {
  pieces.resize(std::max(pieces.size(), size_t(ranks) * bytes));
  memcpy(pieces.data(), piece, bytes);
  for (int have = 1; have < ranks; have *= 2) {
    size_t length = size_t(std::min(have, ranks - have)) * bytes;
    Outgoing send = {(self + ranks - have) % ranks, pieces.data(), length};
    Incoming receive = {(self + have) % ranks,
                        pieces.data() + size_t(have) * bytes, length};
    doTransfer({&send, 1}, {&receive, 1});
  }
  for (int i = 0; i < ranks; ++i)
    memcpy(whole + size_t((self + i) % ranks) * stride,
           pieces.data() + size_t(i) * bytes, bytes);
}

// Moves what can be moved without waiting. Returns true if that was anything. A
// link that breaks is the mender's business.
bool TcpChannel::progress(Flow &flow) {
  Link &link = linkTo(flow.peer);
  // What it kept is to be sent again first, if it was mended.
  if (flow.sends)
    return link.push();
  bool hadHeader = flow.done >= sizeof(Header);
  size_t moved = link.receive(flow.rest());
  flow.done += moved;
  if (!hadHeader && flow.done >= sizeof(Header))
    check(flow);
  return moved > 0;
}

// The expected number and size are those of this rank's own call.
void TcpChannel::check(const Flow &flow) const {
  Header expected = headerOf(received[size_t(flow.peer)], flow.bytes);
  if (memcmp(&expected, &flow.header, sizeof expected) != 0)
    fail(runError(concat(session.nameOf(members[size_t(flow.peer)]),
                         " called a different collective than rank ",
                         members[size_t(self)])));
}

// Waits without a deadline, since a collective may wait for a slow rank for as
// long as it takes.
void TcpChannel::sleep() {
  int mended = all.mended[size_t(which)];
  entries.clear();
  for (const Flow &flow : flows)
    if (!isDone(flow))
      entries.push_back({linkTo(flow.peer).descriptor(),
                         short(flow.sends ? POLLOUT : POLLIN), 0});
  // The mender has sent the last of it meanwhile.
  if (entries.empty())
    return;
  entries.push_back({mended, POLLIN, 0});
  poll(entries.data(), entries.size(), -1); // a signal only tries again
  uint64_t count;
  if (entries.back().revents)
    (void)!read(mended, &count, sizeof count);
}

void TcpChannel::doTransfer(std::span<const Outgoing> sends,
                            std::span<const Incoming> receives) {
  flows.clear();
  // A link keeps addresses of the flows.
  flows.reserve(sends.size() + receives.size());
  for (const Outgoing &message : sends) {
    flows.push_back(
        {true, message.peer,
         headerOf(++sent[size_t(message.peer)], message.bytes),
         const_cast<char *>(static_cast<const char *>(message.data)),
         message.bytes});
    linkTo(message.peer).beginMessage(flows.back().rest());
  }
  for (const Incoming &message : receives) {
    ++received[size_t(message.peer)];
    flows.push_back({false,
                     message.peer,
                     {},
                     static_cast<char *>(message.data),
                     message.bytes});
  }
  for (;;) {
    bool moved = false, done = true;
    for (Flow &flow : flows) {
      if (!isDone(flow))
        moved |= progress(flow);
      done &= isDone(flow);
    }
    if (done)
      break;
    if (!moved)
      sleep();
  }
  for (const Outgoing &message : sends)
    linkTo(message.peer).endMessage();
}

std::unique_ptr<TcpChannel> TcpChannel::part(int color) {
  Group group = groupOf(*this, color);
  std::vector<int> chosen, onNodes;
  for (int member : group.members) {
    chosen.push_back(members[size_t(member)]);
    onNodes.push_back(nodes[size_t(member)]);
  }
  // The same on all its ranks, and another one for every split.
  uint64_t made = (id + ++splits) * 0x9e3779b97f4a7c15u + uint64_t(color);
  return std::make_unique<TcpChannel>(group.rank, which, std::move(chosen),
                                      std::move(onNodes), all, session, made);
}

// Ranks of one node: collectives go through windows, messages over connections.
class TcpWindows : public WindowCommunicator {
public:
  TcpWindows(std::unique_ptr<TcpChannel> messages,
             std::unique_ptr<SharedMemory> memory)
      : WindowCommunicator(messages->rank(), memory->windows(),
                           Staging::of(messages->channel(), messages->size())),
        messages(std::move(messages)), memory(std::move(memory)) {}

  void doTransfer(std::span<const Outgoing> sends,
                  std::span<const Incoming> receives) override {
    messages->transfer(sends, receives);
  }
  std::unique_ptr<Communicator> split(int color) override {
    return messages->split(color);
  }

private:
  const std::unique_ptr<TcpChannel> messages;
  const std::unique_ptr<SharedMemory> memory;
};

// Returns windows for ranks of one node, or null on all of them if they cannot
// share memory. Collective.
std::unique_ptr<SharedMemory> windowsOf(TcpChannel &ranks) {
  return SharedMemory::make(
      ranks, Staging::of(ranks.channel(), ranks.size()).windowBytes());
}

void warnWithoutWindows(const TcpChannel &ranks, const char *consequence) {
  if (ranks.rank() == 0 && ranks.channel() == gatherChannel)
    printWarning(concat("ranks of a machine cannot share memory, so ",
                        consequence,
                        "; either memory is lacking, or they do not see each "
                        "other in /proc (put them into one PID namespace, for "
                        "containers --pid=host)"));
}

// Ranks of one node exchange everything through windows, except messages and
// the few values of the control channel. Collective.
std::unique_ptr<Communicator> onNode(std::unique_ptr<TcpChannel> flat) {
  auto memory = windowsOf(*flat);
  if (memory)
    return std::make_unique<TcpWindows>(std::move(flat), std::move(memory));
  warnWithoutWindows(*flat, "they exchange data over connections");
  return flat;
}

// Lets the ranks of a node hand on to each other what they gather, if all of
// them can share memory. Collective.
std::unique_ptr<Communicator> overNodes(std::unique_ptr<TcpChannel> flat) {
  NodeGrid grid = flat->grid();
  if (flat->channel() == controlChannel || flat->size() == 1)
    return flat;
  if (grid.nodes == 1)
    return onNode(std::move(flat));
  if (!grid.isDeep())
    return flat;
  auto near = flat->part(grid.nodeOf(flat->rank()));
  auto far = flat->part(grid.placeOf(flat->rank()));
  auto memory = windowsOf(*near);
  int32_t shares = memory != nullptr;
  std::vector<int32_t> allShare(size_t(flat->size()));
  flat->allGather(&shares, allShare.data(), sizeof shares);
  if (std::find(allShare.begin(), allShare.end(), 0) != allShare.end()) {
    warnWithoutWindows(*flat, "each byte of a gather enters it several times, "
                              "and --reduce-order=fast has no effect");
    return flat;
  }
  return std::make_unique<NodeCommunicator>(
      std::move(flat),
      std::make_unique<TcpWindows>(std::move(near), std::move(memory)),
      std::move(far));
}

// Ranks that take different ones for their node would wait for each other.
void agreeOnNodes(TcpChannel &flat) {
  int32_t own = flat.grid().ranks;
  std::vector<int32_t> all(size_t(flat.size()));
  flat.allGather(&own, all.data(), sizeof own);
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      fail(inputError(concat("rank ", rank, " has ", all[rank],
                             " ranks on a node, but rank 0 has ", all[0],
                             "; start all ranks with the same "
                             "--ranks-per-node")));
}

std::unique_ptr<Communicator> TcpChannel::split(int color) {
  return overNodes(part(color));
}

} // namespace

std::unique_ptr<Communicator> makeTcpChannel(int rank, Channel channel,
                                             Links &all, TcpSession &session,
                                             const std::vector<int> &nodes) {
  std::vector<int> members;
  for (int member = 0; member < all.ranks; ++member)
    members.push_back(member);
  auto flat = std::make_unique<TcpChannel>(rank, channel, std::move(members),
                                           nodes, all, session, 0);
  if (channel == gatherChannel)
    agreeOnNodes(*flat);
  return overNodes(std::move(flat));
}

} // namespace fsdpc::runtime
