// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A TCP job from the connections that the meeting made: the watch and the
// channels. The meeting's two sides are in tcp_meeting.cpp and tcp_caller.cpp,
// and the connections between the other ranks in tcp_peers.cpp.
#include "runtime/comm/tcp/tcp.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/tcp/tcp_channel.h"
#include "runtime/comm/tcp/tcp_meeting.h"

#include <cstdio>
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

// A rank of a large job has more connections than the usual limit of 1024 open
// files. A failure shows when a connection cannot be made.
static void allowOpenFiles() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
}

Result<std::unique_ptr<Job>> joinTcp(const LaunchEnvironment &environment,
                                     int ranksPerNode, double silence) {
  int ranks = environment.ranks;
  allowOpenFiles();
  Mesh mesh(ranks, silence);
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
  // The loss of rank 0 is printed once per machine: by rank 1, and by the first
  // rank of every other host.
  auto session = std::make_shared<TcpSession>(
      job->rank, job->rank == 1 || job->rankOnHost == 0, silence,
      std::move(hosts), std::move(mesh.peers[watchLink]));
  // A weak reference: the session must end with the job, not with the last copy
  // of this function.
  job->abort = [weak = std::weak_ptr<TcpSession>(session)](ExitCode code) {
    if (auto session = weak.lock())
      session->abort(code);
    fflush(nullptr);
    _exit(int(code));
  };
  // Before the other connections exist, so that a failure ends all ranks.
  setAbort(job->abort);
  connectPeers(environment, mesh);
  for (int i = 0; i < channels; ++i)
    job->channel[i] = makeTcpChannel(job->rank, Channel(i),
                                     std::move(mesh.peers[i]), *session);
  job->session = std::move(session);
  return job;
}

} // namespace fsdpc::runtime
