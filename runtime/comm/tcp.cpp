// A TCP job from the connections that the meeting made: the watch and the
// channels. The meeting's two sides are in tcp_meeting.cpp and tcp_caller.cpp.
#include "runtime/comm/tcp.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/tcp_channel.h"
#include "runtime/comm/tcp_meeting.h"

#include <cstdio>
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

Result<std::unique_ptr<Job>> joinTcp(const LaunchEnvironment &environment,
                                     int ranksPerNode, double silence) {
  int ranks = environment.ranks;
  Star star;
  star.hosts.resize(size_t(ranks));
  star.hosts[size_t(environment.rank)] = ownHostName();
  for (std::vector<Socket> &link : star.peers)
    link.resize(environment.rank == 0 ? size_t(ranks) : 1);
  // Nothing of the job exists before the meeting succeeds: a failure leaves no
  // thread and no open connection.
  FSDPC_TRY(environment.rank == 0 ? holdMeeting(environment, star)
                                  : joinMeeting(environment, star));

  std::vector<std::string> hosts;
  for (const HostName &host : star.hosts)
    hosts.push_back(textOf(host));
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
      std::move(hosts), std::move(star.peers[watchLink]));
  // A weak reference: the session must end with the job, not with the last copy
  // of this function.
  job->abort = [weak = std::weak_ptr<TcpSession>(session)](int code) {
    if (auto session = weak.lock())
      session->abort(code);
    fflush(nullptr);
    _exit(code);
  };
  // Before the channels exist, so that a failure of theirs ends all ranks.
  setAbort(job->abort);
  for (int i = 0; i < channels; ++i)
    job->channel[i] = makeTcpChannel(job->rank, ranks, Channel(i),
                                     std::move(star.peers[i]), *session);
  job->session = std::move(session);
  return job;
}

} // namespace fsdpc::runtime
