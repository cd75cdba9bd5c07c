// The MPI plugin (mpi_plugin.h). It waits by testing and sleeping, because
// MPI's own waits spin on cores that the compute threads need. All collectives
// are therefore nonblocking calls followed by such a wait.
#include "runtime/comm/mpi_plugin.h"
#include "runtime/comm/spin.h"

#include <cstring>
#include <ctime>
#include <mpi.h>
#include <sys/prctl.h>
#include <vector>

namespace {

std::vector<MPI_Comm *> openChannels;
std::vector<MPI_Win> openWindows;

MPI_Comm comm(void *channel) { return *static_cast<MPI_Comm *>(channel); }

void wait(MPI_Request *request) {
  int done = 0;
  auto test = [&] {
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  };
  if (fsdpc::runtime::spinFor20Microseconds(test))
    return;
  // Without this the kernel extends short sleeps by 50 µs.
  prctl(PR_SET_TIMERSLACK, 1000);
  while (!test()) {
    timespec pause = {0, 20000};
    nanosleep(&pause, nullptr);
  }
}

// Streams call MPI from different threads, hence MPI_THREAD_MULTIPLE.
const char *join(int *rank, int *size, int *rankOnHost, int *ranksOnHost) {
  int provided;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided) !=
      MPI_SUCCESS)
    return "MPI_Init_thread failed";
  if (provided < MPI_THREAD_MULTIPLE)
    return "this MPI library does not support MPI_THREAD_MULTIPLE";
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, size);
  MPI_Comm host;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, *rank,
                      MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, rankOnHost);
  MPI_Comm_size(host, ranksOnHost);
  MPI_Comm_free(&host);
  return nullptr;
}

void *openChannel() {
  auto *channel = new MPI_Comm;
  MPI_Comm_dup(MPI_COMM_WORLD, channel);
  openChannels.push_back(channel);
  return channel;
}

const char *openWindow(void *channel, size_t bytes, char **bases) {
  int rank, size;
  MPI_Comm_rank(comm(channel), &rank);
  MPI_Comm_size(comm(channel), &size);
  // noncontig gives each rank pages of its own, which the kernel can place near
  // it.
  MPI_Info info;
  MPI_Info_create(&info);
  MPI_Info_set(info, "alloc_shared_noncontig", "true");
  MPI_Win window;
  void *own;
  int status = MPI_Win_allocate_shared(MPI_Aint(bytes), 1, info, comm(channel),
                                       &own, &window);
  MPI_Info_free(&info);
  if (status != MPI_SUCCESS)
    return "MPI_Win_allocate_shared failed";
  openWindows.push_back(window);
  for (int peer = 0; peer < size; ++peer) {
    MPI_Aint length;
    int unit;
    void *base;
    MPI_Win_shared_query(window, peer, &length, &unit, &base);
    bases[peer] = static_cast<char *>(base);
  }
  memset(own, 0, bytes < 4096 ? bytes : 4096);
  MPI_Barrier(comm(channel));
  return nullptr;
}

void exchange(void *channel, const void *sent, void *received, size_t bytes) {
  MPI_Request request;
  MPI_Ialltoall(sent, int(bytes), MPI_BYTE, received, int(bytes), MPI_BYTE,
                comm(channel), &request);
  wait(&request);
}

void gather(void *channel, const void *piece, void *whole, size_t bytes,
            size_t stride) {
  int rank;
  MPI_Comm_rank(comm(channel), &rank);
  // The pieces land one stride apart: a type with the stride as its extent.
  MPI_Datatype dense, spaced;
  MPI_Type_contiguous(int(bytes), MPI_BYTE, &dense);
  MPI_Type_create_resized(dense, 0, MPI_Aint(stride), &spaced);
  MPI_Type_commit(&spaced);
  bool inPlace = static_cast<char *>(whole) + rank * stride == piece;
  MPI_Request request;
  MPI_Iallgather(inPlace ? MPI_IN_PLACE : piece, int(bytes), MPI_BYTE, whole, 1,
                 spaced, comm(channel), &request);
  wait(&request);
  MPI_Type_free(&spaced);
  MPI_Type_free(&dense);
}

void barrier(void *channel) {
  MPI_Request request;
  MPI_Ibarrier(comm(channel), &request);
  wait(&request);
}

void abortJob(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

// Collective. Windows and channels must be freed before MPI_Finalize.
void leave() {
  for (MPI_Win &window : openWindows)
    MPI_Win_free(&window);
  for (MPI_Comm *channel : openChannels) {
    MPI_Comm_free(channel);
    delete channel;
  }
  openWindows.clear();
  openChannels.clear();
  MPI_Finalize();
}

} // namespace

extern "C" __attribute__((visibility("default")))
const fsdpc::runtime::MpiPlugin fsdpc_mpi_plugin = {
    join, openChannel, openWindow, exchange, gather, barrier, abortJob, leave};
