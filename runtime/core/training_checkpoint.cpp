// Writes checkpoints. Checksums of all files meet in the manifest, which rank 0
// writes when every rank's file is on disk; then the folder gets its name. So a
// checkpoint is whole or it is not there, and files of two checkpoints cannot
// be mixed.
#include "runtime/core/training_checkpoint.h"
#include "runtime/core/checkpoint_file.h"
#include "shared/memory_plan.h"

#include <algorithm>
#include <utility>

namespace fsdpc::runtime {
namespace {

// Appends one tensor from the device's memory.
Status addTensor(CheckpointFile &file, fsdpc_rank &rank, const void *from,
                 uint64_t bytes) {
  bool host = rank.device->isHostMemory();
  std::vector<char> staging;
  for (uint64_t done = 0; done < bytes; done += checkpointPiece) {
    uint64_t length = std::min(checkpointPiece, bytes - done);
    const char *piece = static_cast<const char *>(from) + done;
    if (!host) {
      staging.resize(checkpointPiece);
      rank.device->download(staging.data(), piece, length);
      piece = staging.data();
    }
    FSDPC_TRY(file.write(piece, length));
  }
  file.endTensor();
  return {};
}

// In the order of tensorsOf.
Status writeRankFile(fsdpc_rank &rank, const CheckpointManifest &stored,
                     const std::string &folder, StoredFile &sums) {
  CheckpointFile file;
  FSDPC_TRY(
      file.open(folder, rank.job.rank, tensorsOf(stored, rank.job.rank), sums));
  for (size_t i = 0; i < stored.layouts.size(); ++i) {
    const LayoutBuffers &buffers = rank.layouts[i];
    uint64_t bytes = uint64_t(buffers.own) * sizeof(float);
    // Of several replicas of a shard each writes a part.
    int64_t own = buffers.ownOf(rank.job.rank);
    FSDPC_TRY(addTensor(
        file, rank, buffers.masterShard + own - buffers.shardOf(rank.job.rank),
        bytes));
    // Replicated states hold this rank's shard at its place.
    int64_t first = own - buffers.partBegin;
    for (int32_t state = 0; state < stored.layouts[i].states; ++state)
      FSDPC_TRY(addTensor(
          file, rank, buffers.states + state * buffers.part + first, bytes));
  }
  for (size_t i = 0; i < stored.buffers.size() && rank.job.rank == 0; ++i)
    FSDPC_TRY(addTensor(file, rank, rank.buffers[i],
                        uint64_t(bufferElements(stored.buffers[i]) *
                                 dtypeBytes(stored.buffers[i].dtype))));
  return file.commit();
}

// Sends every rank's checksums to all. Rank 0's file has the most tensors.
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

} // namespace

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
    bytes += stored.ranks * layout.shard * (1 + layout.states) *
             int64_t(sizeof(float));
  for (const Buffer &buffer : stored.buffers)
    bytes += bufferElements(buffer) * dtypeBytes(buffer.dtype);
  return bytes;
}

// The ranks agree after each of three stages, so a rank that fails never leaves
// another waiting.
Together writeCheckpoint(
    fsdpc_rank &rank, CheckpointFolder &folder, const TrainingState &state,
    const std::vector<std::pair<std::string, std::string>> &settings) {
  Job &job = rank.job;
  bool leads = job.rank == 0;
  rank.device->synchronize();
  CheckpointManifest stored =
      describeCheckpoint(rank.manifest, job.size, rank.groupRanks);
  stored.state = state;
  stored.settings = settings;
  Together outcome = together(job, leads ? folder.begin(state.step) : Status());
  StoredFile sums;
  if (outcome.failed < 0) {
    outcome = together(
        job, writeRankFile(rank, stored, folder.temporaryOf(state.step), sums));
    if (outcome.failed < 0) {
      gatherSums(job, sums, stored);
      Status named;
      if (leads) {
        named = writeManifest(folder.temporaryOf(state.step), stored);
        if (named)
          named = folder.publish(state.step);
      }
      outcome = together(job, std::move(named));
    }
  }
  if (leads && outcome.failed >= 0)
    folder.drop(state.step);
  return outcome;
}

} // namespace fsdpc::runtime
