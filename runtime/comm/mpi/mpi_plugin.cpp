// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The MPI plugin (mpi_plugin.h). It waits by testing and sleeping, because
// MPI's own waits spin on cores that the compute threads need. All collectives
// are therefore nonblocking calls followed by such a wait.
#include "runtime/comm/mpi/mpi_plugin.h"
#include "runtime/comm/spin.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <mpi.h>
#include <sys/prctl.h>
#include <vector>

using fsdpc::runtime::Incoming;
using fsdpc::runtime::Outgoing;

namespace {

// A communicator of MPI, with the words on their way to each peer, and the
// messages of the transfer under way, whose memory is kept from call to call.
struct Channel {
  MPI_Comm comm;
  std::vector<MPI_Request> sending;
  std::vector<unsigned char> words;
  std::vector<MPI_Request> messages;
  std::vector<MPI_Status> received;
};

// Freed by `leave`. Filled before the streams start, hence without a lock.
std::vector<Channel *> openChannels;
std::vector<MPI_Win> openWindows;

MPI_Comm comm(void *channel) { return static_cast<Channel *>(channel)->comm; }

// Returns null, or what a call returned as text.
const char *failure(const char *call, int status) {
  if (status == MPI_SUCCESS)
    return nullptr;
  thread_local char text[64 + MPI_MAX_ERROR_STRING];
  char reason[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(status, reason, &length);
  snprintf(text, sizeof text, "%s failed (%s)", call, reason);
  return text;
}

// Polls `done`, and sleeps between two looks once polling has been in vain.
template <typename Done> void sleepUntil(Done &&done) {
  if (fsdpc::runtime::spinFor20Microseconds(done))
    return;
  // Without this the kernel extends short sleeps by 50 µs.
  prctl(PR_SET_TIMERSLACK, 1000);
  while (!done()) {
    timespec pause = {0, 20000};
    nanosleep(&pause, nullptr);
  }
}

// Waits for a request that `call` has started with `status`. Returns null or an
// error, like the table's functions.
const char *await(const char *call, int status, MPI_Request *request) {
  int done = 0;
  sleepUntil([&] {
    if (status == MPI_SUCCESS)
      status = MPI_Test(request, &done, MPI_STATUS_IGNORE);
    return done != 0 || status != MPI_SUCCESS;
  });
  return failure(call, status);
}

// Streams call MPI from different threads, hence MPI_THREAD_MULTIPLE. Errors
// are returned, since by default they end the job in the library, with its own
// text alone. Duplicates of the communicator inherit that.
const char *join(int *rank, int *size, int *rankOnHost, int *ranksOnHost,
                 int *host) {
  int provided;
  if (const char *why = failure(
          "MPI_Init_thread",
          MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided)))
    return why;
  if (provided < MPI_THREAD_MULTIPLE)
    return "this MPI library does not support MPI_THREAD_MULTIPLE";
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, rank);
  MPI_Comm_size(MPI_COMM_WORLD, size);
  MPI_Comm onHost;
  if (const char *why =
          failure("MPI_Comm_split_type",
                  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED,
                                      *rank, MPI_INFO_NULL, &onHost)))
    return why;
  MPI_Comm_rank(onHost, rankOnHost);
  MPI_Comm_size(onHost, ranksOnHost);
  *host = *rank;
  const char *why =
      failure("MPI_Bcast", MPI_Bcast(host, 1, MPI_INT, 0, onHost));
  MPI_Comm_free(&onHost);
  return why;
}

// `words` holds the byte that MPI_Isend reads until it has been sent.
Channel *channelOf(MPI_Comm comm) {
  int size;
  MPI_Comm_size(comm, &size);
  auto *made = new Channel{comm,
                           std::vector(size_t(size), MPI_REQUEST_NULL),
                           std::vector<unsigned char>(size_t(size)),
                           {},
                           {}};
  openChannels.push_back(made);
  return made;
}

// A communicator per channel keeps the collectives of different streams apart.
const char *openChannel(void **channel) {
  MPI_Comm made;
  if (const char *why =
          failure("MPI_Comm_dup", MPI_Comm_dup(MPI_COMM_WORLD, &made)))
    return why;
  *channel = channelOf(made);
  return nullptr;
}

// All keys are 0, which keeps the order of the ranks.
const char *split(void *channel, int color, void **group) {
  MPI_Comm made;
  if (const char *why = failure("MPI_Comm_split",
                                MPI_Comm_split(comm(channel), color, 0, &made)))
    return why;
  *group = channelOf(made);
  return nullptr;
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
  if (const char *why = failure("MPI_Win_allocate_shared", status))
    return why;
  MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
  openWindows.push_back(window);
  // Each rank maps the windows of the others at addresses of its own.
  for (int peer = 0; peer < size; ++peer) {
    MPI_Aint length;
    int unit;
    void *base;
    if (const char *why =
            failure("MPI_Win_shared_query",
                    MPI_Win_shared_query(window, peer, &length, &unit, &base)))
      return why;
    bases[peer] = static_cast<char *>(base);
  }
  // Zeroed memory is a valid FutexBarrier. The MPI barrier keeps the others
  // from using it before.
  memset(own, 0, bytes < 4096 ? bytes : 4096);
  return failure("MPI_Barrier", MPI_Barrier(comm(channel)));
}

// `bytes` fits an int: callers pass pieces of staging memory, at most 1 MiB.
const char *exchange(void *channel, const void *sent, void *received,
                     size_t bytes) {
  MPI_Request request;
  int status = MPI_Ialltoall(sent, int(bytes), MPI_BYTE, received, int(bytes),
                             MPI_BYTE, comm(channel), &request);
  return await("MPI_Ialltoall", status, &request);
}

const char *gather(void *channel, const void *piece, void *whole, size_t bytes,
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
  int status =
      MPI_Iallgather(inPlace ? MPI_IN_PLACE : piece, int(bytes), MPI_BYTE,
                     whole, 1, spaced, comm(channel), &request);
  const char *why = await("MPI_Iallgather", status, &request);
  MPI_Type_free(&spaced);
  MPI_Type_free(&dense);
  return why;
}

const char *barrier(void *channel) {
  MPI_Request request;
  int status = MPI_Ibarrier(comm(channel), &request);
  return await("MPI_Ibarrier", status, &request);
}

// Calls start(offset, length) for each piece of a message: MPI counts in ints.
template <typename Start> int inPieces(size_t bytes, Start &&start) {
  constexpr size_t most = size_t(1) << 30;
  int status = MPI_SUCCESS;
  size_t offset = 0;
  do {
    size_t length = std::min(most, bytes - offset);
    status = start(offset, int(length));
    offset += length;
  } while (offset < bytes && status == MPI_SUCCESS);
  return status;
}

// Receives are posted first, so that messages can go straight to their place. A
// message that is too long is MPI's error. Pieces of one message arrive in the
// order in which they were sent.
const char *transfer(void *channel, std::span<const Outgoing> sends,
                     std::span<const Incoming> receives) {
  auto *own = static_cast<Channel *>(channel);
  std::vector<MPI_Request> &messages = own->messages;
  messages.clear();
  auto add = [&]() { return &messages.emplace_back(MPI_REQUEST_NULL); };
  int status = MPI_SUCCESS;
  for (const Incoming &message : receives)
    if (status == MPI_SUCCESS)
      status = inPieces(message.bytes, [&](size_t offset, int length) {
        return MPI_Irecv(static_cast<char *>(message.data) + offset, length,
                         MPI_BYTE, message.peer, 0, own->comm, add());
      });
  for (const Outgoing &message : sends)
    if (status == MPI_SUCCESS)
      status = inPieces(message.bytes, [&](size_t offset, int length) {
        return MPI_Isend(static_cast<const char *>(message.data) + offset,
                         length, MPI_BYTE, message.peer, 0, own->comm, add());
      });
  own->received.resize(messages.size());
  int done = 0;
  sleepUntil([&] {
    if (status == MPI_SUCCESS)
      status = MPI_Testall(int(messages.size()), messages.data(), &done,
                           own->received.data());
    return done != 0 || status != MPI_SUCCESS;
  });
  if (const char *why = failure("a transfer", status))
    return why;
  // MPI accepts a shorter message silently.
  size_t at = 0;
  bool whole = true;
  for (const Incoming &message : receives)
    inPieces(message.bytes, [&](size_t, int length) {
      int count = 0;
      MPI_Get_count(&own->received[at++], MPI_BYTE, &count);
      whole = whole && count == length;
      return MPI_SUCCESS;
    });
  return whole ? nullptr : "a peer sent fewer bytes than expected";
}

// The first MPI_Test succeeds, because a null request counts as done.
bool tell(void *channel, int peer, unsigned char word) {
  auto *own = static_cast<Channel *>(channel);
  MPI_Request &request = own->sending[size_t(peer)];
  int sent = 0;
  if (MPI_Test(&request, &sent, MPI_STATUS_IGNORE) != MPI_SUCCESS || !sent)
    return false;
  own->words[size_t(peer)] = word;
  return MPI_Isend(&own->words[size_t(peer)], 1, MPI_BYTE, peer, 0, own->comm,
                   &request) == MPI_SUCCESS;
}

// An error reads as nothing heard. A rank that stays silent for that reason is
// then reported as lost.
bool hear(void *channel, int *peer, unsigned char *word) {
  int waiting = 0;
  MPI_Status status;
  if (MPI_Iprobe(MPI_ANY_SOURCE, 0, comm(channel), &waiting, &status) !=
          MPI_SUCCESS ||
      !waiting)
    return false;
  *peer = status.MPI_SOURCE;
  return MPI_Recv(word, 1, MPI_BYTE, *peer, 0, comm(channel),
                  MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

void abortJob(int code) { MPI_Abort(MPI_COMM_WORLD, code); }

// Collective. Frees windows and channels, as MPI_Finalize requires. Completes
// the last sends of a channel first, because they read its `words`.
void leave() {
  for (MPI_Win &window : openWindows)
    MPI_Win_free(&window);
  for (Channel *channel : openChannels) {
    MPI_Waitall(int(channel->sending.size()), channel->sending.data(),
                MPI_STATUSES_IGNORE);
    MPI_Comm_free(&channel->comm);
    delete channel;
  }
  openWindows.clear();
  openChannels.clear();
  MPI_Finalize();
}

} // namespace

extern "C" __attribute__((visibility("default")))
const fsdpc::runtime::MpiPlugin fsdpc_mpi_plugin = {
    join,    openChannel, split, openWindow, exchange, gather,
    barrier, transfer,    tell,  hear,       abortJob, leave};
