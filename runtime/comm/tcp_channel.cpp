// Collectives over a star of connections. Each message begins with a header
// that names the collective, its number and its size. Ranks that disagree about
// what comes next are then detected instead of waiting forever.
#include "runtime/comm/tcp_channel.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/staged.h"

#include <cstring>

namespace fsdpc::runtime {

namespace {

class TcpChannel : public ExchangeCommunicator {
public:
  TcpChannel(int rank, int ranks, Staging staging, std::vector<Socket> peers,
             TcpSession &session)
      : ExchangeCommunicator(rank, ranks, staging), peers(std::move(peers)),
        session(session) {}

  void barrier() override { exchangeWithAll("barrier", nullptr, nullptr, 0); }

protected:
  void gather(const char *piece, char *whole, size_t bytes,
              size_t stride) override {
    begin("gather", bytes);
    char *own = whole + self * stride;
    if (own != piece)
      memcpy(own, piece, bytes);
    auto others = [&](int but, auto &&body) {
      for (int from = 0; from < ranks; ++from)
        if (from != but)
          body(whole + from * stride);
    };
    if (self != 0) {
      say(0);
      put(0, own, bytes);
      hear(0);
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
    relay.resize(row * ranks);
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
