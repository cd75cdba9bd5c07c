// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes checkpoints. Checksums of all files meet in the manifest, which rank 0
// writes when every rank's file is on disk; then the folder gets its name. So a
// checkpoint is whole or it is not there, and files of two checkpoints cannot
// be mixed.
#include "runtime/checkpoint/training_checkpoint.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/checkpoint/checkpoint_file.h"
#include "runtime/numeric/reduce.h"
#include "runtime/support/concat.h"
#include "runtime/support/threads.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <new>
#include <utility>

namespace fsdpc::runtime {
namespace {

// Sends every rank's checksums to all. Rank 0's file has the most tensors.
// Every rank knows how many tensors each file has, so only the checksums
// travel.
void gatherSums(Job &job, const StoredFile &own, CheckpointManifest &stored) {
  size_t width = 1 + tensorsOf(stored, 0).size();
  std::vector<uint64_t> mine(width), all(width * size_t(job.size));
  mine[0] = own.header;
  std::copy(own.tensors.begin(), own.tensors.end(), mine.begin() + 1);
  job.channel[controlChannel]->allGather(mine.data(), all.data(),
                                         width * sizeof(uint64_t));
  for (int rank = 0; rank < job.size; ++rank) {
    const uint64_t *first = &all[size_t(rank) * width];
    size_t count = tensorsOf(stored, rank).size();
    stored.files.push_back({*first, {first + 1, first + 1 + count}});
  }
}

// Signals go to other threads, where they interrupt nothing. Returns false if
// the system has no more threads.
bool startWithoutSignals(std::thread &thread, std::function<void()> work) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int code = tryThread(thread, std::move(work));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return code == 0;
}

} // namespace

// One number per rank over the control channel. It is the barrier after which
// all ranks know that all are done.
Together together(Job &job, Status own) {
  Together outcome{std::move(own)};
  int64_t fails = outcome.own ? 0 : 1;
  std::vector<int64_t> all(size_t(job.size));
  job.channel[controlChannel]->allGather(&fails, all.data(), sizeof fails);
  for (int rank = job.size - 1; rank >= 0; --rank)
    if (all[size_t(rank)])
      outcome.failed = rank;
  return outcome;
}

int64_t checkpointBytes(const CheckpointManifest &stored) {
  int64_t bytes = 0;
  for (const StoredLayout &layout : stored.layouts)
    bytes += (layout.owner == noOwner ? stored.ranks : 1) * layout.heldShard() *
                 layout.elementBytes() +
             (stored.ranks * layout.residual + layout.compressionElements()) *
                 int64_t(sizeof(float));
  for (const Buffer &buffer : stored.buffers)
    bytes += bufferElements(buffer) * dtypeBytes(buffer.dtype);
  return bytes;
}

int64_t checkpointCopyBytes(const CheckpointManifest &stored) {
  int64_t bytes = 0;
  std::vector<int64_t> owned(size_t(stored.ranks), 0);
  for (const StoredLayout &layout : stored.layouts) {
    (layout.owner == noOwner ? bytes : owned[size_t(layout.owner)]) +=
        layout.heldShard() * layout.elementBytes();
    bytes += (layout.residual + layout.compressionElements()) *
             int64_t(sizeof(float));
  }
  bytes += *std::max_element(owned.begin(), owned.end());
  for (const Buffer &buffer : stored.buffers)
    bytes += bufferElements(buffer) * dtypeBytes(buffer.dtype);
  return bytes;
}

CheckpointWriter::~CheckpointWriter() {
  if (thread.joinable())
    thread.join();
}

CheckpointManifest CheckpointWriter::describe() const {
  CheckpointManifest described = describeCheckpoint(
      rank.manifest, rank.job.size, rank.groupRanks, !base.empty());
  for (const StoredLayout &layout : described.layouts)
    if (layout.leftOut)
      described.base = base;
  return described;
}

// The pages are touched here, so that no step has to wait for them.
Status CheckpointWriter::allocateCopy() {
  int64_t bytes = 0;
  stored = describe();
  for (const Piece &piece : pieces())
    bytes += int64_t(piece.bytes);
  try {
    copied.resize(size_t(bytes));
  } catch (const std::bad_alloc &) {
    return runError(
        concat("cannot allocate the ", bytes,
               " bytes into which a checkpoint is copied; leave out "
               "--checkpoint-every, or use more ranks"));
  }
  return {};
}

// Each replica of a shard writes a part of it. A layout without masters, or one
// of bytes, is written as it lies. A frozen one may lack them otherwise; then
// its values are widened from the compute type.
CheckpointWriter::Piece CheckpointWriter::parameters(size_t layout) const {
  const LayoutBuffers &buffers = rank.layouts[layout];
  const Layout &own = rank.manifest.layouts[layout];
  int64_t first = buffers.ownOf(rank.job.rank) - buffers.shardOf(rank.job.rank);
  bool inFile = rank.isInFile(own.parametersOffloaded);
  WireType type = inFile                ? offloadedTypeOf(rank, int32_t(layout))
                  : buffers.masterShard ? WireType::f32
                                        : computeTypeOf(rank, int32_t(layout));
  const char *values = buffers.masterShard
                           ? reinterpret_cast<char *>(buffers.masterShard)
                           : buffers.computeShard;
  uint64_t width = elementBytes(type);
  const void *from = inFile ? nullptr : values + uint64_t(first) * width;
  if (own.noMaster || own.ofBytes)
    return {from,           uint64_t(buffers.own) * width,
            WireType::f32,  layout,
            parameterState, first};
  return {from,           uint64_t(buffers.own) * sizeof(float),
          type,           layout,
          parameterState, first};
}

// In the order of tensorsOf, on which readers rely.
std::vector<CheckpointWriter::Piece> CheckpointWriter::pieces() const {
  std::vector<Piece> pieces;
  int self = rank.job.rank;
  for (size_t i = 0; i < stored.layouts.size(); ++i) {
    const LayoutBuffers &buffers = rank.layouts[i];
    uint64_t bytes = uint64_t(buffers.own) * sizeof(float);
    pieces.push_back(stored.layouts[i].leftOut ? Piece{nullptr, 0}
                                               : parameters(i));
    // Replicated states hold this rank's shard at its place.
    int64_t first = buffers.ownOf(self) - buffers.partBegin;
    for (int32_t state = 0; state < stored.layouts[i].states; ++state)
      if (rank.isInFile(rank.manifest.layouts[i].statesOffloaded))
        pieces.push_back({nullptr, bytes, WireType::f32, i, state, first});
      else
        pieces.push_back(
            {buffers.states + state * buffers.part + first, bytes});
    int64_t kept = self == 0 ? stored.layouts[i].compressionElements() : 0;
    if (buffers.residual)
      pieces.push_back({buffers.residual,
                        uint64_t(stored.layouts[i].residual) * sizeof(float)});
    if (buffers.compression)
      pieces.push_back({buffers.compression, uint64_t(kept) * sizeof(float)});
  }
  for (size_t i = 0; i < stored.buffers.size() && self == 0; ++i)
    pieces.push_back(
        {rank.buffers[i], uint64_t(bufferElements(stored.buffers[i]) *
                                   dtypeBytes(stored.buffers[i].dtype))});
  return pieces;
}

// Reads bytes [begin, begin + length) of the piece as it lies in memory or in
// the file of what is offloaded.
Status CheckpointWriter::readRaw(const Piece &piece, uint64_t begin,
                                 uint64_t length, char *to) const {
  if (piece.from) {
    rank.device->download(to, static_cast<const char *>(piece.from) + begin,
                          length);
    return {};
  }
  bool isState = piece.state != parameterState;
  uint64_t width =
      isState ? sizeof(float)
              : elementBytes(offloadedTypeOf(rank, int32_t(piece.layout)));
  int64_t first = piece.first + int64_t(begin / width);
  int64_t count = int64_t(length / width);
  if (!isState)
    return rank.shardFile->readParameters(piece.layout, first, count, to);
  return rank.shardFile->readStates(piece.layout, piece.state, first, count,
                                    reinterpret_cast<float *>(to));
}

// Reads `length` bytes, as the checkpoint holds them, from `done` on. An empty
// piece belongs to another rank, and this one may have no memory for it.
Status CheckpointWriter::read(const Piece &piece, uint64_t done,
                              uint64_t length, char *to) const {
  if (length == 0)
    return {};
  if (piece.type == WireType::f32)
    return readRaw(piece, done, length, to);
  std::vector<char> narrow;
  for (uint64_t end = done + length; done < end;) {
    uint64_t count = std::min(checkpointPiece, end - done) / sizeof(float);
    narrow.resize(count * elementBytes(piece.type));
    FSDPC_TRY(readRaw(piece, done / sizeof(float) * elementBytes(piece.type),
                      narrow.size(), narrow.data()));
    castToWire(narrow.data(), piece.type, WireType::f32, int64_t(count),
               reinterpret_cast<float *>(to));
    done += count * sizeof(float);
    to += count * sizeof(float);
  }
  return {};
}

// Memory to memory, between two steps: the training waits for this and not for
// the disk.
Status CheckpointWriter::copy() {
  char *to = copied.data();
  for (const Piece &piece : pieces()) {
    FSDPC_TRY(read(piece, 0, piece.bytes, to));
    to += piece.bytes;
  }
  return {};
}

// Writes this rank's file, from the copy if there is one.
Status CheckpointWriter::writeFile() {
  CheckpointFile file;
  FSDPC_TRY(file.open(folder.temporaryOf(step()), rank.job.rank,
                      tensorsOf(stored, rank.job.rank), sums));
  std::vector<char> staging;
  const char *next = copied.data();
  for (const Piece &piece : pieces()) {
    // Host memory in f32 is written where it lies.
    bool direct = rank.device->isHostMemory() && piece.from &&
                  piece.type == WireType::f32;
    if (copied.empty() && !direct)
      staging.resize(size_t(checkpointPiece));
    for (uint64_t done = 0; done < piece.bytes; done += checkpointPiece) {
      uint64_t length = std::min(checkpointPiece, piece.bytes - done);
      const char *from = staging.data();
      if (!copied.empty())
        from = next + done;
      else if (direct)
        from = static_cast<const char *>(piece.from) + done;
      else
        FSDPC_TRY(read(piece, done, length, staging.data()));
      FSDPC_TRY(file.write(from, length));
    }
    file.endTensor();
    if (!copied.empty())
      next += piece.bytes;
  }
  return file.commit();
}

// An exception of a thread would end the process without a word. If there are
// no more threads, the calling one does the work: the next step comes later.
void CheckpointWriter::run(std::function<Status()> work) {
  busy.store(true, std::memory_order_relaxed);
  auto guarded = [this, work = std::move(work)] {
    try {
      outcome = work();
    } catch (const std::exception &fault) {
      outcome = runError(fault.what());
    }
    busy.store(false, std::memory_order_release);
  };
  if (!startWithoutSignals(thread, guarded))
    guarded();
}

Status CheckpointWriter::join() {
  if (thread.joinable())
    thread.join();
  return std::exchange(outcome, Status());
}

// A failure to make the folder is rank 0's, and all ranks learn of it before
// any file is written.
Together CheckpointWriter::start(
    const TrainingState &state,
    std::vector<std::pair<std::string, std::string>> settings) {
  rank.device->synchronize();
  stored = describe();
  stored.state = state;
  stored.settings = std::move(settings);
  for (size_t i = 0; i < stored.layouts.size(); ++i)
    stored.layouts[i].since = rank.layouts[i].since;
  sums = {};
  Together begun =
      together(rank.job, rank.job.rank == 0 ? folder.begin(step()) : Status());
  if (begun.failed >= 0) {
    if (rank.job.rank == 0)
      folder.drop(step());
    return begun;
  }
  stage = Stage::writing;
  outcome = copied.empty() ? writeFile() : copy();
  if (!copied.empty() && outcome)
    run([this] { return writeFile(); });
  return begun;
}

// The result of the thread counts only here, so a rank never acts on a failure
// that the others do not know of.
Together CheckpointWriter::advance() {
  bool leads = rank.job.rank == 0;
  Together ended = together(rank.job, join());
  if (ended.failed >= 0) {
    if (leads)
      folder.drop(step());
    stage = Stage::idle;
  } else if (stage == Stage::publishing) {
    stage = Stage::idle;
  } else {
    gatherSums(rank.job, sums, stored);
    stage = Stage::publishing;
    if (leads)
      run([this]() -> Status {
        FSDPC_TRY(writeManifest(folder.temporaryOf(step()), stored));
        FSDPC_TRY(folder.publish(step()));
        published(step());
        return {};
      });
  }
  return ended;
}

Together CheckpointWriter::finish() {
  Together ended;
  while (isActive())
    ended = advance();
  return ended;
}

} // namespace fsdpc::runtime
