// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The listening side of a TCP job's meeting, where rank 0 receives all others.
#pragma once

#include "runtime/comm/tcp/tcp_callers.h"
#include "runtime/comm/tcp/tcp_meeting.h"

namespace fsdpc::runtime {

/// Fills `mesh` with one connection to each other rank. All references must
/// outlive the reception. For one thread.
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
  /// the job does not start.
  void start(int peer, bool starts, Deadline until);
  /// Callers that did not know the key.
  int strangers() const { return callers.strangers(); }

private:
  /// The process that has a rank, and what binds a seal to its connection.
  struct Holder {
    Greeting greeting = {};
    Conversation conversation = {};
  };

  bool isComplete();
  void admit(Guest &guest);
  Endpoint listenerFor(const Socket &connection);
  Verdict judge(const Greeting &greeting) const;

  const LaunchEnvironment &environment;
  Mesh &mesh;
  Callers callers;
  const Bytes32 job;
  Deadline deadline;
  std::vector<Holder> holders; ///< by rank
  size_t arrived = 0;          ///< open connections
};

} // namespace fsdpc::runtime
