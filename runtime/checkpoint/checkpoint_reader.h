// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads a checkpoint: its manifest, and any elements of a parameter or of its
// optimizer states, whichever ranks hold them. A run that resumes reads the
// pieces that its own shards consist of; `fsdpc ckpt` reads whole parameters.
#pragma once

#include "runtime/checkpoint/checkpoint_manifest.h"
#include "runtime/data/safetensors.h"
#include "runtime/support/folder.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// Reads the manifest in a folder. An error means that there is none, or that
/// it is damaged.
Result<CheckpointManifest> readCheckpointManifest(const std::string &folder);
/// The same of an open folder, in which the manifest must not be a link.
Result<CheckpointManifest> readCheckpointManifest(const Folder &folder);

/// Fails if the checkpoint in a folder may be whole, and only this run cannot
/// read it: a later version of the program wrote it, or its permissions forbid
/// it. Any other fault is left to TrainingCheckpoint::open.
Status checkReadable(const std::string &folder);

/// A checkpoint on disk, open for reading.
class TrainingCheckpoint {
public:
  /// Reads the manifest and opens every rank's file. An error means that the
  /// checkpoint is damaged.
  static Result<TrainingCheckpoint> open(const std::string &folder);
  /// Compares checksums; ranks share the files among them.
  Status verify(int rank, int ranks) const;

  const CheckpointManifest &manifest() const { return stored; }

  /// Returns the number in the checkpoint of the member's state that is number
  /// `state` of the program's layout: that of the same name. If either has no
  /// names, or the checkpoint has other ones, their order counts.
  int32_t stateOf(const Layout &layout, const Member &member,
                  int32_t state) const;

  /// Return true if the checkpoint has the parameter's values, and if it leaves
  /// those of any to the run's base.
  bool holds(const Member &member) const {
    return !stored.layouts[placeOf(member).layout].leftOut;
  }
  bool leavesOut() const { return !stored.base.empty(); }
  /// Read elements [begin, begin + count) of a parameter's master, or of one of
  /// its optimizer's own states, or of its average. The states of a parameter
  /// that had none are zero, and its average is the parameter. The checkpoint
  /// must hold the parameter.
  Status readMaster(const Member &member, int64_t begin, int64_t count,
                    float *to) const;
  /// Reads bytes [begin, begin + count) of a member of a layout of bytes, which
  /// the checkpoint must hold.
  Status readBytes(const Member &member, int64_t begin, int64_t count,
                   char *to) const;
  Status readState(const Member &member, int32_t state, int64_t begin,
                   int64_t count, float *to) const;
  Status readAverage(const Member &member, int64_t begin, int64_t count,
                     float *to) const;
  /// Reads elements of what rank `rank` of `ranks` begins with as the part of
  /// its gradients that it has not sent: what the ranks rank, rank + ranks, …
  /// of the run that wrote it had not sent, in that order, so that the sum over
  /// all ranks is the same. Zero if there is none.
  Status readResidual(const Member &member, int64_t rank, int64_t ranks,
                      int64_t begin, int64_t count, float *to) const;
  /// Reads elements of a parameter's CompressionState; zero if the checkpoint
  /// has none of this compression.
  Status readCompressionState(const Member &member,
                              const Compression &compression, int64_t begin,
                              int64_t count, float *to) const;
  /// Returns true if the checkpoint has what has not been sent of the
  /// parameter's gradients.
  bool hasResidual(const Member &member) const {
    return stored.layouts[placeOf(member).layout].residual > 0;
  }
  /// An optimizer's own buffer is zero if the checkpoint does not have it.
  Status readBuffer(const Buffer &buffer, void *to) const;
  /// Returns the updates before the member's state began
  /// (LayoutBuffers::since), or nullopt if it begins now: the member was
  /// frozen, or had an optimizer without states.
  std::optional<int64_t> since(const Layout &layout,
                               const Member &member) const;

private:
  struct Place {
    size_t layout, member;
    int64_t offset;
  };
  const Place &placeOf(const Member &member) const;
  Status readLayout(const Place &place, int32_t part, int64_t begin,
                    int64_t count, float *to) const;
  Status readTensor(size_t file, size_t tensor, int64_t begin, int64_t count,
                    float *to) const;
  Status openFiles(const std::string &folder);

  CheckpointManifest stored;
  std::vector<SafeTensors> files; ///< per rank that wrote it
  /// The tensors of each file, in the order of tensorsOf.
  std::vector<std::vector<const SafeTensor *>> tensors;
  std::vector<size_t> firstOf;         ///< index of each layout's first tensor
  std::map<std::string, Place> places; ///< by the parameter's names
};

} // namespace fsdpc::runtime
