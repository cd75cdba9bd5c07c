// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes the connections of links that are used, so a rank has as many as it has
// peers that it exchanges something with. Makes those again that have broken:
// by a router or firewall that forgot them, a relay that restarted, or a
// network that was away for longer than the system waits. Of two ranks the
// higher one calls. The lower one asks it to, since it may be the only one that
// has noticed. A process that has ended is known by its port, on which nobody
// listens any more, and one that was started in its place by its `self`
// (wire.h): neither is the same peer.
#pragma once

#include "runtime/comm/launch_environment.h"
#include "runtime/comm/tcp/tcp_callers.h"
#include "runtime/comm/tcp/tcp_calls.h"
#include "runtime/comm/tcp/tcp_link.h"
#include "runtime/comm/tcp/tcp_meeting.h"

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace fsdpc::runtime {

/// The links of one rank to others, with the events that they signal.
class Links {
public:
  explicit Links(int ranks);
  ~Links();
  Links(const Links &) = delete;

  /// Returns a link, which is made when it is first asked for. For all threads.
  Link &at(int link, int peer);
  /// Calls body(link, peer, Link &) for each that was made.
  template <typename Body> void forEach(const Body &body);

  const int ranks;
  int broken;                    ///< an eventfd: the mender has something to do
  std::array<int, links> mended; ///< eventfds by link: see Link's constructor

private:
  struct Made {
    Made(int number, int peer, int broken, int mended)
        : number(number), peer(peer), link(broken, mended) {}
    const int number, peer;
    Link link;
  };
  std::mutex mutex;
  std::deque<Made> made; ///< guarded by `mutex`; an element never moves
  std::vector<std::atomic<Link *>> all[runtime::links]; ///< by rank; or null
};

class Mender {
public:
  /// Called on a thread of the mender when a link cannot be made or mended: the
  /// peer has ended, is another process, or was not reached in time. It must
  /// return at once; the mender goes on trying, and calls it again. If the link
  /// never had a connection, `why` is a whole message.
  using Lost = std::function<void(int link, int peer, const std::string &why)>;

  /// Starts two threads. `mesh` and `all` must outlive it. Links are lost after
  /// `mesh.silence` seconds, or 15 minutes if that is 0. Those that never had a
  /// connection have a minute at least, or the environment's `seconds` if those
  /// are fewer.
  Mender(const LaunchEnvironment &environment, const Mesh &mesh, Links &all,
         Lost lost);
  ~Mender();

private:
  void receive();
  void admit(Guest &guest);
  void mend();
  Deadline callAll();
  double limitOf(int peer, const Link::State &state) const;
  void loseNow(int link, int peer, int number, const std::string &why);
  void giveUp(int link, int peer, const Link::State &state,
              const std::string &more);
  std::string notConnected(int peer) const;
  void call(int link, int peer, const Link::State &state);
  void hear(Call &call, const Calls::End &end);
  void report(int peer, const Link::State &state);

  const LaunchEnvironment environment; ///< a copy: the caller's may go
  const Mesh &mesh;
  Links &all;
  const Lost lost;
  const double limit; ///< seconds
  Callers callers;
  const Bytes32 job;
  /// Of the thread that calls.
  Calls calls;
  /// By link and rank: not to be called before.
  std::array<std::vector<Deadline>, links> due;
  /// By rank: when its port first refused a call, of those without an answer in
  /// between.
  std::vector<Deadline> refused;
  std::vector<Deadline> reported; ///< by rank: the last warning
  struct Failure {
    std::string why;
    bool lacksDescriptors;
  };
  /// By link and rank: of the last call.
  std::map<std::pair<int, int>, Failure> failures;
  int ending; ///< an eventfd that is signalled when both threads are to end
  std::atomic<bool> ends = false;
  std::thread receiver, caller;
};

} // namespace fsdpc::runtime
