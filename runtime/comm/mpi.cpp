// Ranks as processes under mpirun. The plugin's shared object is embedded in
// the runtime archive. It is written to an anonymous file and loaded from
// there, so that a program is a single file.
#include "runtime/comm/failure.h"
#include "runtime/comm/mpi_plugin.h"
#include "runtime/comm/staged.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

// The plugin, or no bytes if the build found no MPI; see mpi_embedded.S.
extern "C" const char fsdpc_mpi_object[];
extern "C" const char fsdpc_mpi_object_end[];

namespace fsdpc::runtime {

namespace {

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

class MpiExchange : public ExchangeCommunicator {
public:
  MpiExchange(int rank, int ranks, Staging staging, const MpiPlugin *mpi,
              void *channel)
      : ExchangeCommunicator(rank, ranks, staging), mpi(mpi), channel(channel) {
  }

  void barrier() override { mpi->barrier(channel); }

protected:
  void exchange(const char *sent, char *received, size_t bytes) override {
    mpi->exchange(channel, sent, received, bytes);
  }
  void gather(const char *piece, char *whole, size_t bytes,
              size_t stride) override {
    mpi->gather(channel, piece, whole, bytes, stride);
  }

private:
  const MpiPlugin *mpi;
  void *channel;
};

} // namespace

Result<std::unique_ptr<Job>> joinMpi(int ranksPerNode) {
  Result<const MpiPlugin *> plugin = loadPlugin();
  FSDPC_TRY(plugin);
  const MpiPlugin *mpi = *plugin;
  auto job = std::make_unique<Job>();
  if (const char *why = mpi->join(&job->rank, &job->size, &job->rankOnHost,
                                  &job->ranksOnHost))
    return Error{why};
  // Called when the job is destroyed, after its channels.
  job->session =
      std::shared_ptr<void>(nullptr, [mpi](void *) { mpi->leave(); });
  job->launcher = "mpirun";
  job->transport = "mpi";
  job->abort = [mpi](int code) {
    fflush(nullptr);
    mpi->abort(code);
    _exit(code);
  };
  cutIntoNodes(*job, ranksPerNode);
  // All ranks must take the same path. Whether the whole job is on one node is
  // the same answer on every rank; anything finer is not, since nodes may hold
  // different numbers of ranks.
  bool oneNode = job->ranksOnNode == job->size;
  for (int i = 0; i < channels; ++i) {
    Staging staging = Staging::of(Channel(i), job->size);
    void *channel = mpi->openChannel();
    if (!oneNode || job->size == 1) {
      job->channel[i] = std::make_unique<MpiExchange>(job->rank, job->size,
                                                      staging, mpi, channel);
      continue;
    }
    std::vector<char *> bases(job->size);
    if (const char *why =
            mpi->openWindow(channel, staging.windowBytes(), bases.data()))
      return Error{why};
    job->channel[i] = std::make_unique<WindowCommunicator>(
        job->rank, std::move(bases), staging);
  }
  return job;
}

} // namespace fsdpc::runtime
