// Checkpoints of a run: everything that the next step depends on, written by
// all ranks together and read by any number of them. Each rank writes its own
// shards as they lie; a rank that resumes reads the pieces of old shards that
// its new shards consist of. (--save, in checkpoint.h, writes whole parameters
// for other programs.)
#pragma once

#include "runtime/core/checkpoint_folder.h"
#include "runtime/core/checkpoint_reader.h"
#include "runtime/core/rank.h"

#include <string>
#include <utility>
#include <vector>

namespace fsdpc::runtime {

// The outcome of something that all ranks do together: an error is this rank's
// own, and `failed` is the lowest rank that has one, or -1.
struct Together {
  Status own;
  int failed = -1;
};

// Writes a checkpoint. All ranks call it together; after a failure the folder
// is as it was. `settings` are what the manifest says of the run.
Together writeCheckpoint(
    fsdpc_rank &rank, CheckpointFolder &folder, const TrainingState &state,
    const std::vector<std::pair<std::string, std::string>> &settings);

// Bytes of a checkpoint of all ranks, without headers.
int64_t checkpointBytes(const CheckpointManifest &stored);

// Exchanges whether a rank has an error. All ranks call it together.
Together together(Job &job, Status own);

} // namespace fsdpc::runtime
