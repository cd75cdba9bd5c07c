// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The listening side of a TCP job's meeting: rank 0 receives all other ranks,
// and then each rank those above it. One loop over poll accepts, challenges and
// admits. Anybody can call a port, so a caller is given five seconds from its
// connection to its greeting, and no other caller waits for it. Until its seal
// has proved right, only a fixed number of its bytes are looked at.
#pragma once

#include "runtime/comm/tcp/tcp_meeting.h"

namespace fsdpc::runtime {

/// Fills `mesh` with one connection for each rank above this one and each of
/// its links. All references must outlive the reception. For one thread.
class Reception {
public:
  Reception(const LaunchEnvironment &environment, Mesh &mesh,
            const std::vector<Socket> &listeners, const Bytes32 &key);

  /// Serves callers until all are here, or the deadline has passed, which shows
  /// in missing(). A connection that broke meanwhile may be made again within
  /// ten seconds.
  Status serve(Deadline deadline);
  /// Returns the ranks that are not here, as "1, 3": at most eight of them.
  std::string missing() const;
  /// Tells a rank that all are connected, with the addresses of all, or that
  /// the job does not start. Only on rank 0.
  void start(int peer, bool starts, Deadline until);
  /// Callers that did not know the key.
  int strangers() const { return turnedAway; }

private:
  /// A connection whose end is not known to be a rank yet.
  struct Caller {
    Socket socket;
    Deadline deadline;
    Conversation conversation;
    bool challenged = false;
    size_t filled = 0;
    std::array<uint8_t, sizeof(Greeting)> bytes = {};

    /// Bytes of the message that the caller is to send next.
    size_t wanted() const {
      return challenged ? sizeof(Greeting) : sizeof(Hello);
    }
    std::span<const uint8_t> message() const { return {bytes.data(), filled}; }
  };
  /// The process that has a rank, and what binds a seal to its control
  /// connection.
  struct Holder {
    Greeting greeting = {};
    Conversation control = {};
  };

  bool isHere(int peer) const;
  bool isComplete();
  Status await();
  Status acceptAll(const Socket &listener);
  bool hear(Caller &caller);
  bool challenge(Caller &caller);
  void admit(Caller &caller);
  Verdict judge(const Greeting &greeting) const;

  const LaunchEnvironment &environment;
  Mesh &mesh;
  const std::vector<Socket> &listeners;
  const Bytes32 &key;
  const Bytes32 job;
  const std::span<std::vector<Socket>> expected; ///< links of each higher rank
  Deadline deadline;
  std::vector<Caller> callers;
  std::vector<Holder> holders; ///< by rank
  int turnedAway = 0;
};

} // namespace fsdpc::runtime
