// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The manifest of a checkpoint: a JSON file that says what lies in the files of
// its ranks, with a checksum of each tensor. A checkpoint exists only if its
// manifest does, and a file that the manifest did not see written is refused.
//
// Parameters are described by the layouts of the run that wrote them, so a run
// with other layouts or ranks finds each element by its parameter's name.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/abi/owners.h"
#include "runtime/checkpoint/training_state.h"
#include "runtime/support/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace fsdpc::runtime {

/// A tensor of a rank's file.
struct StoredTensor {
  std::string name, dtype;
  std::vector<int64_t> shape;
};

/// Checksums of a rank's file, by XXH64 with seed 0.
struct StoredFile {
  uint64_t header = 0;           ///< of the file up to the data
  std::vector<uint64_t> tensors; ///< of each tensor's bytes, in their order
};

/// The part of a Layout that says where the elements of its parameters are.
/// Only the name, aliases, shape, offset, elements and position of a member are
/// kept.
struct StoredLayout {
  std::string name;
  int64_t shard = 0; ///< elements per rank
  int32_t states = 0;
  std::vector<Member> members;
  /// Ranks of a shard group, if the layout was cut over groups; 0: it was not.
  int64_t group = 0;
  bool average = false; ///< the last state; see Layout
  /// The optimizer whose states they are; empty if the layout is frozen or the
  /// optimizer is not known.
  std::string optimizer = {};
  /// The names of that optimizer's states, in their order; empty if it has none
  /// or the checkpoint is from before they were stored.
  std::vector<std::string> stateNames = {};
  /// True if it also keeps averages along rows and columns, in buffers.
  bool factored = false;
  /// The type of the parameters: f32, bf16 of a layout without masters, or u8
  /// of a layout of bytes, whose members have types of their own. States are
  /// f32.
  std::string dtype = "f32";
  bool ofBytes() const { return dtype == "u8"; }
  const std::string &typeOf(const Member &member) const {
    return ofBytes() ? member.dtype : dtype;
  }
  /// LayoutBuffers::since, per member; empty if it is 0 for all.
  std::vector<int64_t> since = {};
  /// The rank that has all of it, whose shard is the whole; or noOwner.
  int owner = noOwner;
  /// True if it is frozen, and its values are those of the run's base, which no
  /// file has (--checkpoint-trained).
  bool leftOut = false;
  /// Elements of what every rank has not sent of its gradients of the layout; 0
  /// if reductions send all.
  int64_t residual = 0;
  /// The compression whose states (CompressionState) the files have; none if
  /// its kind has none.
  Compression compression = {};

  int64_t sinceOf(size_t member) const {
    return member < since.size() ? since[member] : 0;
  }
  /// Bytes of an element with its states.
  int64_t elementBytes() const;
  /// The states of the optimizer itself, which come first.
  int32_t ownStates() const { return states - int32_t(average); }
  /// Elements of the states of the compression, of the members before `member`;
  /// of all by default.
  int64_t compressionElements(size_t member = SIZE_MAX) const;
  /// Tensors in each rank's file: parameters, states of the optimizer,
  /// residual, states of the compression.
  size_t tensors() const {
    return 1 + size_t(states) + size_t(residual > 0) +
           size_t(bool(compression));
  }
  /// Elements of a shard in the files, and in the file of a rank.
  int64_t heldShard() const { return leftOut ? 0 : shard; }
  int64_t shardOf(int64_t rank) const {
    return owner == noOwner || owner == rank ? heldShard() : 0;
  }
};

struct CheckpointManifest {
  TrainingState state;
  /// Versions, hashes and options of the program that wrote it, by name. A run
  /// that resumes lists those that differ.
  std::vector<std::pair<std::string, std::string>> settings;
  /// Returns the setting of that name, or null.
  const std::string *settingOf(const std::string &name) const {
    for (auto &[known, value] : settings)
      if (known == name)
        return &value;
    return nullptr;
  }
  int64_t ranks = 0;
  /// The hash of the parameters of the layouts that are left out (hashOfBase);
  /// empty if none is.
  std::string base = {};
  std::vector<StoredLayout> layouts;
  std::vector<Buffer> buffers;   ///< only name, shape and dtype
  std::vector<StoredFile> files; ///< one per rank
};

/// Describes what a run of `manifest` stores; without checksums. With
/// `trainedOnly` frozen layouts are left out; the caller fills in `base`.
CheckpointManifest describeCheckpoint(const Manifest &manifest, int ranks,
                                      int groupRanks, bool trainedOnly);

/// Returns the rank whose file holds a shard. Each rank writes the part of the
/// layout for which it answers (LayoutCut::ownOf). With groups of G of N ranks,
/// rank r mod G of every group has the same N / G shards, and the groups write
/// one each. The only shard of a layout with an owner is in the owner's file.
int64_t rankOfShard(const CheckpointManifest &stored,
                    const StoredLayout &layout, int64_t shard);

/// The tensors in the file of one rank, in their order: each layout's shard of
/// the masters and of every state, which is empty where another rank owns the
/// layout and where it is left out; the rank's residual, and the states of the
/// compression, which are equal on all ranks and empty but on rank 0; the
/// buffers on rank 0.
std::vector<StoredTensor> tensorsOf(const CheckpointManifest &stored, int rank);

/// Returns a parameter's name and aliases as a manifest holds them.
std::vector<std::string> storedNames(const Member &member);

/// "rank-00003.safetensors"
std::string rankFileName(int64_t rank);
/// Returns the rank of which it is the file's name.
std::optional<int64_t> rankOfFile(const std::string &name);

std::string toJson(const CheckpointManifest &stored);
/// Parses and checks a manifest: its own checksum, and that every parameter
/// lies within its layout and every layout within its shards, so that later
/// arithmetic cannot overflow.
Result<CheckpointManifest> parseCheckpoint(const std::string &text);

/// Returns what is wrong with the format of a manifest that a later version has
/// written: "format 4, but this program reads …". Returns nothing for any other
/// text: a manifest of a known format, or what is damaged.
std::optional<std::string> laterFormat(const std::string &text);

/// Fails unless a program can resume from it: same parameters and buffers, and
/// equally many optimizer states. An average may be new or no longer wanted. A
/// parameter that is left out must be frozen in the program too. The error
/// names the first that differ.
Status checkSameModel(const CheckpointManifest &stored,
                      const Manifest &manifest);

} // namespace fsdpc::runtime
