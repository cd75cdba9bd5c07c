// How the ranks of a TCP job find each other. Rank 0 listens; every other rank
// opens one connection per channel to it, and one more for the watch. Both ends
// prove that they know the job's key before they believe anything (wire.h).
#pragma once

#include "runtime/comm/launch_environment.h"
#include "runtime/comm/socket.h"
#include "runtime/comm/wire.h"
#include "shared/status.h"

#include <string>
#include <vector>

namespace fsdpc::runtime {

// The connections of one rank.
struct Star {
  // peers[link][r] is connected to rank r. Rank 0 has an entry per rank, of
  // which its own is closed; other ranks have only the one to rank 0.
  std::vector<Socket> peers[links];
  std::vector<HostName> hosts; // by rank
};

// Rank 0's side. Returns once all ranks are connected. The error names the
// ranks that did not come in time.
Status holdMeeting(const LaunchEnvironment &environment, Star &star);
// The side of the other ranks. Returns once rank 0 says that all ranks are
// there. The error has no message if another rank prints the reason.
Status joinMeeting(const LaunchEnvironment &environment, Star &star);

// The words for rank 0's address in messages.
std::string meetingPlace(const LaunchEnvironment &environment);
// A number of seconds as a user wrote it.
std::string secondsText(double seconds);

} // namespace fsdpc::runtime
