// Ranks as processes under mpirun. The plugin's shared object is embedded in
// the runtime archive. It is written to an anonymous file and loaded from
// there, so that a program is a single file.
#include "runtime/comm/failure.h"
#include "runtime/comm/mpi_plugin.h"
#include "runtime/comm/mpi_watch.h"
#include "runtime/comm/staged.h"

#include <algorithm>
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
    return Error{"the program was built without MPI"};
  int file = memfd_create("fsdpc-mpi", MFD_CLOEXEC);
  if (file < 0 || write(file, fsdpc_mpi_object, bytes) != ssize_t(bytes))
    return Error{"cannot unpack the MPI plugin"};
  // RTLD_GLOBAL, because MPI's own components look for its symbols globally.
  std::string path = "/proc/self/fd/" + std::to_string(file);
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  close(file);
  if (!library)
    return Error{std::string("cannot load MPI (is libmpi installed?): ") +
                 dlerror()};
  return static_cast<const MpiPlugin *>(dlsym(library, mpiPluginSymbol));
}

// Ranks on several nodes: MPI moves the bytes, and the sums are ours.
class MpiExchange : public ExchangeCommunicator {
public:
  MpiExchange(int rank, int ranks, Staging staging, const MpiPlugin *mpi,
              void *channel)
      : ExchangeCommunicator(rank, ranks, staging), mpi(mpi), channel(channel) {
  }

  void barrier() override { check(mpi->barrier(channel)); }

protected:
  void exchange(const char *sent, char *received, size_t bytes) override {
    check(mpi->exchange(channel, sent, received, bytes));
  }
  void gather(const char *piece, char *whole, size_t bytes,
              size_t stride) override {
    check(mpi->gather(channel, piece, whole, bytes, stride));
  }

private:
  void check(const char *why) {
    if (why)
      fail("rank " + std::to_string(self) + ": " + why);
  }

  const MpiPlugin *mpi;
  void *channel;
};

// Ends the job before its first step. What fails on one rank often fails on
// all, so the lowest one prints and ends the job before the others do. To leave
// it in order would need all ranks.
[[noreturn]] void end(const Job &job, const std::string &why) {
  std::this_thread::sleep_for(std::chrono::seconds(2 * std::min(job.rank, 3)));
  fail(why);
}

// Returns the names of all hosts, by rank.
std::vector<std::string> namesOfHosts(const Job &job, const MpiPlugin *mpi,
                                      void *channel) {
  HostName own = ownHostName();
  std::vector<HostName> all(size_t(job.size));
  if (const char *why = mpi->gather(channel, own.data(), all[0].data(),
                                    sizeof own, sizeof own))
    end(job, why);
  std::vector<std::string> names;
  for (const HostName &name : all)
    names.push_back(textOf(name));
  return names;
}

// Open MPI looks at the space that is left for each window by itself, before
// any of them is touched. Too little for all of them would be a SIGBUS later.
void checkSharedMemory(const Job &job) {
  const char *folder = "/dev/shm";
  struct statvfs state;
  uint64_t bytes = 0;
  for (int i = 0; i < channels; ++i)
    bytes +=
        Staging::of(Channel(i), job.size).windowBytes() * uint64_t(job.size);
  if (statvfs(folder, &state) != 0)
    return;
  uint64_t left = uint64_t(state.f_bavail) * state.f_frsize;
  if (left < bytes)
    end(job, "the ranks of this machine share " + std::to_string(bytes) +
                 " bytes in '" + folder + "', which has " +
                 std::to_string(left) +
                 " bytes left; free some, or enlarge it (mount -o "
                 "remount,size=1g /dev/shm, docker run --shm-size=1g)");
}

// Makes a channel by windows in shared memory, if all ranks are on one node, or
// by messages.
std::unique_ptr<Communicator> makeChannel(const Job &job, const MpiPlugin *mpi,
                                          Channel which, bool oneNode) {
  Staging staging = Staging::of(which, job.size);
  void *channel;
  if (const char *why = mpi->openChannel(&channel))
    end(job, why);
  if (!oneNode || job.size == 1)
    return std::make_unique<MpiExchange>(job.rank, job.size, staging, mpi,
                                         channel);
  // The windows belong to MPI; the plugin frees them in `leave`.
  std::vector<char *> bases(size_t(job.size));
  if (const char *why =
          mpi->openWindow(channel, staging.windowBytes(), bases.data()))
    end(job, std::string("the ranks of this machine cannot share memory: ") +
                 why + "; check that /dev/shm is writable and not full");
  return std::make_unique<WindowCommunicator>(job.rank, std::move(bases),
                                              staging);
}

} // namespace

Result<std::unique_ptr<Job>> joinMpi(int ranksPerNode, double silence) {
  Result<const MpiPlugin *> plugin = loadPlugin();
  FSDPC_TRY(plugin);
  const MpiPlugin *mpi = *plugin;
  auto job = std::make_unique<Job>();
  if (const char *why = mpi->join(&job->rank, &job->size, &job->rankOnHost,
                                  &job->ranksOnHost))
    return Error{why};
  job->launcher = "mpirun";
  job->transport = "mpi";
  job->abort = [mpi](int code) {
    fflush(nullptr);
    mpi->abort(code);
    _exit(code);
  };
  setAbort(job->abort);
  cutIntoNodes(*job, ranksPerNode);
  // All ranks must take the same path. Whether the whole job is on one node is
  // the same answer on every rank; anything finer is not, since nodes may hold
  // different numbers of ranks.
  bool oneNode = job->ranksOnNode == job->size;
  if (oneNode && job->size > 1)
    checkSharedMemory(*job);
  for (int i = 0; i < channels; ++i)
    job->channel[i] = makeChannel(*job, mpi, Channel(i), oneNode);
  void *channel;
  if (const char *why = mpi->openChannel(&channel))
    end(*job, why);
  // A channel of its own: the watch sends while collectives run.
  auto watch = std::make_shared<MpiWatch>(mpi, channel, job->rank, silence,
                                          namesOfHosts(*job, mpi, channel));
  // Called when the job is destroyed, after its channels.
  job->session = std::shared_ptr<void>(nullptr, [mpi, watch](void *) mutable {
    watch.reset();
    mpi->leave();
  });
  return job;
}

} // namespace fsdpc::runtime
