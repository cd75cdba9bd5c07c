// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A TCP job from the connections that the meeting made: the watch and the
// channels. The meeting's two sides are in tcp_meeting.cpp and tcp_caller.cpp;
// the other connections are made when ranks first use them (tcp_mender.cpp).
#include "runtime/comm/tcp/tcp.h"
#include "runtime/abi/connections.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/interfaces.h"
#include "runtime/comm/tcp/tcp_channel.h"
#include "runtime/comm/tcp/tcp_meeting.h"
#include "runtime/comm/tcp/tcp_mender.h"
#include "runtime/comm/tcp/tcp_session.h"
#include "runtime/support/concat.h"
#include "runtime/support/diagnostics.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <sys/resource.h>
#include <unistd.h>

namespace fsdpc::runtime {

// Sets the rank's place on its machine: as the launcher says, or else by
// comparing host names.
static void place(Job &job, const LaunchEnvironment &environment,
                  const std::vector<std::string> &hosts, int ranksPerNode) {
  int before = 0, all = 0;
  for (int peer = 0; peer < job.size; ++peer)
    if (hosts[size_t(peer)] == hosts[size_t(job.rank)]) {
      before += peer < job.rank;
      ++all;
    }
  job.rankOnHost =
      environment.rankOnHost >= 0 ? environment.rankOnHost : before;
  job.ranksOnHost = environment.ranksOnHost > 0 ? environment.ranksOnHost : all;
  cutIntoNodes(job, ranksPerNode);
}

// Returns the node of each rank: those of one host, or runs of `ranksPerNode`
// of them.
static std::vector<int> nodesOf(const std::vector<std::string> &hosts,
                                int ranksPerNode) {
  std::map<std::string, std::pair<int, int>> seen; // node, ranks so far
  std::vector<int> nodes;
  int count = 0;
  for (const std::string &host : hosts) {
    auto [at, isNew] = seen.try_emplace(host, 0, 0);
    auto &[node, ranks] = at->second;
    if (isNew || (ranksPerNode > 0 && ranks % ranksPerNode == 0))
      node = count++;
    ++ranks;
    nodes.push_back(node);
  }
  return nodes;
}

// Without /proc the count is 0, and the check below lets more pass.
static int64_t openFiles() {
  std::error_code error;
  std::filesystem::directory_iterator files("/proc/self/fd", error);
  return error ? 0 : std::distance(begin(files), end(files));
}

// A rank of a large job has more connections than the usual limit of 1024 open
// files. Too few would show as connections that cannot be made, one by one and
// maybe hours later, so they are counted before the first. What a program
// exchanges is not known here: if the limit may do, the rank starts.
static Status allowOpenFiles(const LaunchEnvironment &environment,
                             int ranksPerNode) {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
    return {};
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  // Beyond the connections there are events of each link and of three threads,
  // listeners for several addresses, callers, and the secret; then the run's
  // own files, such as data, the log and checkpoints.
  constexpr int64_t others = (links + 3) + 4 + 4 + 1 + 8;
  int ranks = environment.ranks;
  // A launcher that does not say how many are on a host may start one on each.
  int perNode =
      ranksPerNode > 0 ? ranksPerNode : std::max(environment.ranksOnHost, 1);
  int64_t rest = openFiles() + others, most = limit.rlim_max;
  int64_t usual = usualConnections(environment.rank, ranks, perNode);
  int64_t connections = mostConnections(environment.rank, ranks);
  if (rest + connections <= most)
    return {};
  // The ranks of a machine have the same limit.
  bool speaks = environment.rank == 0 || environment.rankOnHost <= 0;
  Error error = runError(concat(
      "rank ", environment.rank, " of ", ranks, " needs up to ",
      rest + connections, " open files, ", connections,
      " of them connections to other ranks, and may have ", most,
      "; raise the hard limit (ulimit -Hn, the launcher's LimitNOFILE), or "
      "start fewer ranks"));
  if (rest + usual > most)
    return speaks ? error : error.reworded("");
  if (speaks)
    printWarning(error.message);
  return {};
}

namespace {

// What the channels share. The mender calls the session and goes before it, but
// after this rank has left: until then links may break.
struct Connections {
  Connections(int ranks, double silence) : mesh(ranks, silence), all(ranks) {}
  ~Connections() {
    if (session)
      session->leave();
  }

  Mesh mesh;
  Links all;
  std::optional<TcpSession> session;
  std::optional<Mender> mender;
};

} // namespace

Result<std::unique_ptr<Job>> joinTcp(const LaunchEnvironment &environment,
                                     int ranksPerNode, double silence) {
  int ranks = environment.ranks;
  FSDPC_TRY(allowOpenFiles(environment, ranksPerNode));
  auto shared = std::make_shared<Connections>(ranks, silence);
  Mesh &mesh = shared->mesh;
  if (!environment.interface.empty()) {
    Result<std::vector<Endpoint>> own = addressesOf(environment.interface);
    FSDPC_TRY(own);
    mesh.own = std::move(*own);
  }
  mesh.members[size_t(environment.rank)].host = ownHostName();
  // Nothing of the job exists before the meeting succeeds: a failure leaves no
  // thread and no open connection.
  FSDPC_TRY(environment.rank == 0 ? holdMeeting(environment, mesh)
                                  : joinMeeting(environment, mesh));

  std::vector<std::string> hosts;
  for (const Member &member : mesh.members)
    hosts.push_back(textOf(member.host));
  auto job = std::make_unique<Job>();
  job->rank = environment.rank;
  job->size = ranks;
  job->launcher = environment.launcher;
  job->transport = "tcp";
  place(*job, environment, hosts, ranksPerNode);
  std::vector<int> nodes = nodesOf(hosts, ranksPerNode);
  // The loss of rank 0 is printed once per machine: by rank 1, and by the first
  // rank of every other host.
  Links &all = shared->all;
  for (int peer = 0; peer < ranks; ++peer)
    if (mesh.watch[size_t(peer)].isOpen())
      all.at(watchLink, peer).open(std::move(mesh.watch[size_t(peer)]));
  TcpSession &session =
      shared->session.emplace(job->rank, job->rank == 1 || job->rankOnHost == 0,
                              silence, std::move(hosts), all);
  // A weak reference: the session must end with the job, not with the last copy
  // of this function.
  job->abort = [weak = std::weak_ptr<Connections>(shared)](ExitCode code) {
    if (auto shared = weak.lock())
      shared->session->abort(code);
    fflush(nullptr);
    _exit(int(code));
  };
  // Before the first collective, so that a failure ends all ranks.
  setAbort(job->abort);
  shared->mender.emplace(
      environment, mesh, all,
      [&session](int link, int peer, const std::string &why) {
        session.lost(link, peer, why);
      });
  for (int i = 0; i < channels; ++i)
    job->channel[i] =
        makeTcpChannel(job->rank, Channel(i), all, session, nodes);
  job->session = std::move(shared);
  return job;
}

} // namespace fsdpc::runtime
