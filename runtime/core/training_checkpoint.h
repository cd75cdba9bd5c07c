// Checkpoints of a run: everything that the next step depends on, written by
// all ranks together and read by any number of them. Each rank writes its own
// shards as they lie; a rank that resumes reads the pieces of old shards that
// its new shards consist of. (--save, in checkpoint.h, writes whole parameters
// for other programs.)
#pragma once

#include "runtime/core/checkpoint_folder.h"
#include "runtime/core/checkpoint_manifest.h"
#include "runtime/core/rank.h"
#include "runtime/core/safetensors.h"

#include <map>
#include <string>
#include <vector>

namespace fsdpc::runtime {

// A checkpoint on disk, open for reading.
class TrainingCheckpoint {
public:
  // Reads the manifest and opens every rank's file. An error means that the
  // checkpoint is damaged.
  static Result<TrainingCheckpoint> open(const std::string &folder);
  // Compares checksums; ranks share the files among them.
  Status verify(int rank, int ranks) const;

  const CheckpointManifest &manifest() const { return stored; }

  // Read elements [begin, begin + count) of a parameter's master, or of one of
  // its optimizer's own states, or of its average. The states of a parameter
  // that had none are zero, and its average is the parameter.
  Status readMaster(const Member &member, int64_t begin, int64_t count,
                    float *to) const;
  Status readState(const Member &member, int32_t state, int64_t begin,
                   int64_t count, float *to) const;
  Status readAverage(const Member &member, int64_t begin, int64_t count,
                     float *to) const;
  Status readBuffer(const Buffer &buffer, void *to) const;

private:
  struct Place {
    size_t layout;
    int64_t offset;
  };
  Status readLayout(const Place &place, int32_t part, int64_t begin,
                    int64_t count, float *to) const;
  Status openFiles(const std::string &folder);

  CheckpointManifest stored;
  std::vector<SafeTensors> files; // per rank that wrote it
  // Of each file, its tensors in the order of tensorsOf.
  std::vector<std::vector<const SafeTensor *>> tensors;
  std::vector<size_t> firstOf;         // index of each layout's first tensor
  std::map<std::string, Place> places; // by the parameter's name
};

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
