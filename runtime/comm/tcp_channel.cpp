// Collectives over a star of connections. Each message begins with a header
// that names the collective, its number and its size. Ranks that disagree about
// what comes next are then detected instead of waiting forever.
#include "runtime/comm/tcp_channel.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/staged.h"

#include <cstring>

namespace fsdpc::runtime {

namespace {

// On rank 0, peers[r] is the connection to rank r; on the others, peers[0] is
// the one to rank 0. Rank 0 receives from and sends to the others one after the
// other: the order is fixed, so no two ranks can wait for each other.
class TcpChannel : public ExchangeCommunicator {
public:
  TcpChannel(int rank, int ranks, Staging staging, std::vector<Socket> peers,
             TcpSession &session)
      : ExchangeCommunicator(rank, ranks, staging), peers(std::move(peers)),
        session(session) {}

  void barrier() override { exchangeWithAll("barrier", nullptr, nullptr, 0); }
  void transfer(std::span<const Outgoing>, std::span<const Incoming>) override {
    fail("ranks other than rank 0 are not connected over tcp");
  }
  std::unique_ptr<Communicator> split(int) override {
    fail("the tcp transport has no groups of ranks");
  }

protected:
  void gather(const char *piece, char *whole, size_t bytes,
              size_t stride) override {
    begin("gather", bytes);
    char *own = whole + self * stride;
    if (own != piece)
      memcpy(own, piece, bytes);
    // Calls body with every rank's place in `whole` but that of `but`, in rank
    // order. Sender and receiver walk the pieces in this same order.
    auto others = [&](int but, auto &&body) {
      for (int from = 0; from < ranks; ++from)
        if (from != but)
          body(whole + from * stride);
    };
    if (self != 0) {
      say(0);
      put(0, own, bytes);
      hear(0);
      // The own piece is in place already and is not sent back.
      others(self, [&](char *segment) { take(0, segment, bytes); });
      return;
    }
    for (int from = 1; from < ranks; ++from) {
      hear(from);
      take(from, whole + from * stride, bytes);
    }
    for (int to = 1; to < ranks; ++to) {
      say(to);
      others(to, [&](char *segment) { put(to, segment, bytes); });
    }
  }

  void exchange(const char *sent, char *received, size_t bytes) override {
    exchangeWithAll("exchange", sent, received, bytes);
  }

private:
  // All-to-all by way of rank 0, which collects a row from each rank and sends
  // each its column. A barrier is an all-to-all of no bytes.
  void exchangeWithAll(const char *operation, const char *sent, char *received,
                       size_t bytes) {
    begin(operation, bytes);
    size_t row = bytes * ranks;
    if (self != 0) {
      say(0);
      put(0, sent, row);
      hear(0);
      take(0, received, row);
      return;
    }
    // Grows to the largest piece and stays, so a step allocates nothing. The
    // memory plan counts it (communicationBytes, "tcp").
    relay.resize(row * ranks);
    // A barrier has null pointers, which memcpy must not get.
    if (bytes)
      memcpy(relay.data(), sent, row);
    for (int from = 1; from < ranks; ++from) {
      hear(from);
      take(from, relay.data() + from * row, row);
    }
    for (int to = 1; to < ranks; ++to) {
      say(to);
      for (int from = 0; from < ranks; ++from)
        put(to, relay.data() + from * row + to * bytes, bytes);
    }
    for (int from = 0; bytes && from < ranks; ++from)
      memcpy(received + from * bytes, relay.data() + from * row, bytes);
  }

  // Starts the header of the next collective. Headers are compared as bytes;
  // strncpy fills the rest of the name with zeroes.
  void begin(const char *operation, size_t bytes) {
    ++current.number;
    current.bytes = bytes;
    strncpy(current.operation, operation, sizeof current.operation);
  }
  void say(int peer) { put(peer, &current, sizeof current); }
  void hear(int peer) {
    Header said;
    take(peer, &said, sizeof said);
    if (memcmp(&current, &said, sizeof said) != 0)
      fail(session.nameOf(peer) + " called a different collective than rank " +
           std::to_string(self));
  }
  // Waits without a deadline, since a collective may wait for a slow rank for
  // as long as it takes; a lost rank is the watch's business.
  void put(int peer, const void *data, size_t bytes) {
    if (Status sent = peers[size_t(peer)].send(data, bytes, never); !sent)
      session.lost(peer, sent.error().message);
  }
  void take(int peer, void *data, size_t bytes) {
    if (Status got = peers[size_t(peer)].receive(data, bytes, never); !got)
      session.lost(peer, got.error().message);
  }

  struct Header {
    char operation[16] = {};
    uint64_t number = 0, bytes = 0;
  };
  std::vector<Socket> peers;
  TcpSession &session;
  std::vector<char> relay; // rank 0: what each rank sent
  Header current;          // of the collective under way
};

} // namespace

std::unique_ptr<Communicator> makeTcpChannel(int rank, int ranks,
                                             Channel channel,
                                             std::vector<Socket> peers,
                                             TcpSession &session) {
  return std::make_unique<TcpChannel>(rank, ranks, Staging::of(channel, ranks),
                                      std::move(peers), session);
}

} // namespace fsdpc::runtime
