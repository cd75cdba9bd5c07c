// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as processes under mpirun. The plugin's shared object is embedded in
// the runtime archive. It is written to an anonymous file and loaded from
// there, so that a program is a single file.
#include "runtime/comm/failure.h"
#include "runtime/comm/groups.h"
#include "runtime/comm/mpi/mpi_plugin.h"
#include "runtime/comm/mpi/mpi_watch.h"
#include "runtime/comm/nodes.h"
#include "runtime/comm/staged.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <thread>
#include <unistd.h>

// The plugin, or no bytes if the build found no MPI; see mpi_embedded.S.
extern "C" const char fsdpc_mpi_object[];
extern "C" const char fsdpc_mpi_object_end[];

namespace fsdpc::runtime {

namespace {

// The table lives in the library, which is never unloaded.
Result<const MpiPlugin *> loadPlugin() {
  size_t bytes = fsdpc_mpi_object_end - fsdpc_mpi_object;
  if (bytes == 0)
    return inputError("the program was built without MPI");
  int file = memfd_create("fsdpc-mpi", MFD_CLOEXEC);
  if (file < 0 || write(file, fsdpc_mpi_object, bytes) != ssize_t(bytes))
    return runError("cannot unpack the MPI plugin");
  // RTLD_GLOBAL, because MPI's own components look for its symbols globally.
  std::string path = concat("/proc/self/fd/", file);
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  close(file);
  if (!library)
    return inputError(std::string("cannot load MPI (is libmpi installed?): ") +
                      dlerror());
  return static_cast<const MpiPlugin *>(dlsym(library, mpiPluginSymbol));
}

// Ends the job before its first step. An error of one rank is often one of all
// ranks, so the lowest one prints and ends the job before the others do. To
// leave it in order would need all ranks.
[[noreturn]] void end(int rank, const Error &why) {
  std::this_thread::sleep_for(std::chrono::seconds(2 * std::min(rank, 3)));
  fail(why);
}

// Returns the names of all hosts, by rank.
std::vector<std::string> namesOfHosts(const Job &job, const MpiPlugin *mpi,
                                      void *channel) {
  HostName own = ownHostName();
  std::vector<HostName> all(size_t(job.size));
  if (const char *why = mpi->gather(channel, own.data(), all[0].data(),
                                    sizeof own, sizeof own))
    end(job.rank, machineError(why));
  std::vector<std::string> names;
  for (const HostName &name : all)
    names.push_back(textOf(name));
  return names;
}

// Open MPI looks at the space that is left for each window by itself, before
// any of them is touched. Too little for all of them would be a SIGBUS later.
void checkSharedMemory(int rank, uint64_t bytes) {
  const char *folder = "/dev/shm";
  struct statvfs state;
  if (statvfs(folder, &state) != 0)
    return;
  uint64_t left = uint64_t(state.f_bavail) * state.f_frsize;
  if (left < bytes)
    end(rank, runError(concat(
                  "the ranks of this machine share ", bytes, " bytes in '",
                  folder, "', which has ", left,
                  " bytes left; free some, or enlarge it (mount -o "
                  "remount,size=1g /dev/shm, docker run --shm-size=1g)")));
}

// The bytes of all windows of a job on one node.
uint64_t sharedBytes(int ranks) {
  uint64_t bytes = 0;
  for (int i = 0; i < channels; ++i)
    bytes += Staging::of(Channel(i), ranks).windowBytes() * uint64_t(ranks);
  return bytes;
}

// The number of a virtual node and of the host that it is on. Ranks with equal
// places can share windows.
using Place = std::array<int, 2>;

// The ranks of a communicator, and MPI's communicator below it.
struct MpiChannel {
  const MpiPlugin *mpi;
  void *handle; // freed by MpiPlugin::leave
  Channel which;
  int rank;
  std::vector<Place> places; // by rank

  int size() const { return int(places.size()); }
  bool onOneNode() const {
    return std::all_of(places.begin(), places.end(),
                       [&](const Place &place) { return place == places[0]; });
  }
  Staging staging() const { return Staging::of(which, size()); }
  void check(const char *why) const {
    if (why)
      fail(machineError(concat("rank ", rank, ": ", why)));
  }
  void transfer(std::span<const Outgoing> sends,
                std::span<const Incoming> receives) const {
    check(mpi->transfer(handle, sends, receives));
  }
  std::unique_ptr<Communicator> split(Communicator &whole, int color) const;
  // The ranks of these numbers, which all give `color`.
  MpiChannel part(int color, const std::vector<int> &members) const;
};

// Ranks on several nodes: MPI moves the bytes, and the sums are ours.
class MpiExchange : public ExchangeCommunicator {
public:
  explicit MpiExchange(MpiChannel channel)
      : ExchangeCommunicator(channel.rank, channel.size(), channel.staging()),
        channel(std::move(channel)) {
    setNodes(this->channel.places);
    useSlowLink();
  }

  void barrier() override { channel.check(mpi().barrier(channel.handle)); }
  void doTransfer(std::span<const Outgoing> sends,
                  std::span<const Incoming> receives) override {
    passLink(sends);
    channel.transfer(sends, receives);
  }
  std::unique_ptr<Communicator> split(int color) override {
    return channel.split(*this, color);
  }

protected:
  void exchange(const char *sent, char *received, size_t bytes) override {
    channel.check(mpi().exchange(channel.handle, sent, received, bytes));
  }
  void gather(const char *piece, char *whole, size_t bytes,
              size_t stride) override {
    channel.check(mpi().gather(channel.handle, piece, whole, bytes, stride));
  }

private:
  const MpiPlugin &mpi() const { return *channel.mpi; }
  MpiChannel channel;
};

// Ranks on one node: collectives go through windows, messages through MPI.
class MpiWindows : public WindowCommunicator {
public:
  MpiWindows(MpiChannel channel, std::vector<char *> windows)
      : WindowCommunicator(channel.rank, std::move(windows), channel.staging()),
        channel(std::move(channel)) {}

  void doTransfer(std::span<const Outgoing> sends,
                  std::span<const Incoming> receives) override {
    channel.transfer(sends, receives);
  }
  std::unique_ptr<Communicator> split(int color) override {
    return channel.split(*this, color);
  }

private:
  MpiChannel channel;
};

std::unique_ptr<Communicator> makeExchange(MpiChannel channel);

// Uses windows in shared memory if all ranks are on one node, else messages.
// All ranks take the same path, since all know the places of all.
std::unique_ptr<Communicator> makeCommunicator(MpiChannel channel) {
  if (!channel.onOneNode() || channel.size() == 1)
    return makeExchange(std::move(channel));
  // The windows belong to MPI; the plugin frees them in `leave`.
  std::vector<char *> bases(size_t(channel.size()));
  if (const char *why = channel.mpi->openWindow(
          channel.handle, channel.staging().windowBytes(), bases.data()))
    end(channel.rank,
        runError(
            std::string("the ranks of this machine cannot share memory: ") +
            why + "; check that /dev/shm is writable and not full"));
  return std::make_unique<MpiWindows>(std::move(channel), std::move(bases));
}

// Ranks of one node hand on to each other what they gather.
std::unique_ptr<Communicator> makeExchange(MpiChannel channel) {
  auto flat = std::make_unique<MpiExchange>(channel);
  NodeGrid grid = gridOf(std::span<const Place>(channel.places));
  if (channel.which == controlChannel || !grid.isDeep())
    return flat;
  int node = grid.nodeOf(channel.rank), place = grid.placeOf(channel.rank);
  std::vector<int> near, far;
  for (int i = 0; i < grid.ranks; ++i)
    near.push_back(node * grid.ranks + i);
  for (int i = 0; i < grid.nodes; ++i)
    far.push_back(i * grid.ranks + place);
  auto ofNode = makeCommunicator(channel.part(node, near));
  auto ofPlace = makeCommunicator(channel.part(place, far));
  return std::make_unique<NodeCommunicator>(std::move(flat), std::move(ofNode),
                                            std::move(ofPlace));
}

MpiChannel MpiChannel::part(int color, const std::vector<int> &members) const {
  MpiChannel made = {mpi, nullptr, which, 0, {}};
  for (int member : members) {
    if (member == rank)
      made.rank = int(made.places.size());
    made.places.push_back(places[size_t(member)]);
  }
  if (const char *why = mpi->split(handle, color, &made.handle))
    end(rank, machineError(why));
  // All parts on a host ask for their windows at the same time.
  if (made.onOneNode() && made.size() > 1) {
    int64_t onHost = std::ranges::count(places, places[size_t(rank)][1],
                                        [](const Place &p) { return p[1]; });
    checkSharedMemory(rank, uint64_t(onHost) * made.staging().windowBytes());
  }
  return made;
}

std::unique_ptr<Communicator> MpiChannel::split(Communicator &whole,
                                                int color) const {
  return makeCommunicator(part(color, groupOf(whole, color).members));
}

// Returns the places of all ranks. `host` is the lowest rank of this one's.
std::vector<Place> placesOf(const Job &job, const MpiPlugin *mpi, void *channel,
                            int host) {
  Place own = {job.rank - job.rankOnNode, host};
  // Without virtual nodes the host is the node; its ranks need not be numbered
  // one after the other.
  if (job.ranksOnNode == job.ranksOnHost)
    own[0] = host;
  std::vector<Place> places(size_t(job.size));
  if (const char *why = mpi->gather(channel, own.data(),
                                    reinterpret_cast<char *>(places.data()),
                                    sizeof own, sizeof own))
    end(job.rank, machineError(why));
  return places;
}

} // namespace

Result<std::unique_ptr<Job>> joinMpi(int ranksPerNode, double silence) {
  Result<const MpiPlugin *> plugin = loadPlugin();
  FSDPC_TRY(plugin);
  const MpiPlugin *mpi = *plugin;
  auto job = std::make_unique<Job>();
  int host;
  if (const char *why = mpi->join(&job->rank, &job->size, &job->rankOnHost,
                                  &job->ranksOnHost, &host))
    return machineError(why);
  job->launcher = "mpirun";
  job->transport = "mpi";
  job->abort = [mpi](ExitCode code) {
    fflush(nullptr);
    mpi->abort(int(code));
    _exit(int(code));
  };
  setAbort(job->abort);
  cutIntoNodes(*job, ranksPerNode);
  // A channel of its own: the watch sends while collectives run.
  void *watched;
  if (const char *why = mpi->openChannel(&watched))
    end(job->rank, machineError(why));
  std::vector<Place> places = placesOf(*job, mpi, watched, host);
  for (int i = 0; i < channels; ++i) {
    MpiChannel channel = {mpi, nullptr, Channel(i), job->rank, places};
    if (i == 0 && channel.onOneNode() && job->size > 1)
      checkSharedMemory(job->rank, sharedBytes(job->size));
    if (const char *why = mpi->openChannel(&channel.handle))
      end(job->rank, machineError(why));
    job->channel[i] = makeCommunicator(std::move(channel));
  }
  auto watch = std::make_shared<MpiWatch>(mpi, watched, job->rank, silence,
                                          namesOfHosts(*job, mpi, watched));
  // Called when the job is destroyed, after its channels.
  job->session = std::shared_ptr<void>(nullptr, [mpi, watch](void *) mutable {
    watch.reset();
    mpi->leave();
  });
  return job;
}

} // namespace fsdpc::runtime
