// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps a TCP job together. Each rank has one more connection to rank 0, on
// which a thread of its own listens: it notices when the other end is silent,
// ends the job then, and passes on that another rank has ended it. The channels
// cannot do this, because they wait for as long as a collective takes. What
// breaks is made again by the mender (tcp_mender.h), which must run.
#pragma once

#include "runtime/comm/tcp/tcp_mender.h"
#include "runtime/comm/wire.h"

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace fsdpc::runtime {

class TcpSession {
public:
  /// On rank 0 the watch's links lead to each rank, on other ranks to rank 0.
  /// `all` must outlive it. `hosts` are by rank. `silence` is in seconds.
  TcpSession(int rank, bool speaks, double silence,
             std::vector<std::string> hosts, Links &all);
  ~TcpSession();
  /// Leaves the job, together with the other ranks. To be called once, before
  /// the end.
  void leave();

  /// Ends all ranks. The caller has printed the reason.
  [[noreturn]] void abort(ExitCode code);
  /// Says that a link to `peer` cannot be made or mended (Mender::Lost). The
  /// watch's thread then ends the job, unless it has heard meanwhile that the
  /// job is ending anyway.
  void lost(int link, int peer, const std::string &why);
  /// Names a rank for messages: "rank 2 on node 'x'".
  std::string nameOf(int peer) const;

private:
  struct Loss {
    int link, peer;
    std::string why;
    Deadline since;
  };

  void watch();
  void hear(int peer);
  void hear(int peer, uint8_t byte);
  Deadline judgeLosses();
  bool isDone(int peer);
  void tell(Word word, int except = -1);
  Link &link(int peer) const { return all.at(watchLink, peer); }
  [[noreturn]] void gone(int peer, const std::string &why);

  const int self;
  const bool speaks; ///< prints a loss that several ranks notice
  const double silence;
  const std::vector<std::string> hosts;
  Links &all;
  std::vector<int> peers;      ///< with which this rank has a watch's link
  std::vector<Deadline> heard; ///< by rank
  std::vector<bool> left;      ///< ranks that announced that they leave
  std::atomic<bool> leaving = false;
  std::mutex mutex;
  std::vector<Loss>
      losses;    ///< guarded by `mutex`; of each link and peer the first
  int wake = -1; ///< an eventfd that is signalled when this rank leaves
  std::thread watcher;
};

} // namespace fsdpc::runtime
