// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps a TCP job together. Each rank has one more connection to rank 0, on
// which a thread of its own listens: it notices when the other end is gone or
// silent, ends the job then, and passes on that another rank has ended it. The
// channels cannot do this, because they wait for as long as a collective takes.
#pragma once

#include "runtime/comm/socket.h"
#include "runtime/comm/wire.h"

#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fsdpc::runtime {

class TcpSession {
public:
  /// On rank 0, `links` holds a connection to each rank (its own is closed); on
  /// other ranks, one to rank 0. `hosts` are by rank. `silence` is in seconds.
  TcpSession(int rank, bool speaks, double silence,
             std::vector<std::string> hosts, std::vector<Socket> links);
  /// Leaves the job, together with the other ranks.
  ~TcpSession();

  /// Ends all ranks. The caller has printed the reason.
  [[noreturn]] void abort(ExitCode code);
  /// Ends the job because a transfer with `peer` failed, but prints nothing if
  /// another rank has ended it already.
  [[noreturn]] void lost(int peer, const std::string &why);
  /// Names a rank for messages: "rank 2 on node 'x'".
  std::string nameOf(int peer) const;

private:
  void watch();
  bool hear(int peer);
  void tell(Word word, int except = -1);
  [[noreturn]] void gone(int peer, const std::string &why);

  const int self;
  const bool speaks; ///< prints a loss that several ranks notice
  const double silence;
  const std::vector<std::string> hosts;
  std::vector<Socket> links;
  std::vector<Deadline> heard;
  std::vector<bool> left; ///< ranks that announced that they leave
  std::mutex sending;
  int wake = -1; ///< an eventfd that is signalled when this rank leaves
  std::thread watcher;
};

} // namespace fsdpc::runtime
