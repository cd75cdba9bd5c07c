// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Describes what a run stores in its checkpoint, and which of its files has it.
// checkpoint_json.cpp writes and reads that as text; checkpoint_model.cpp tells
// whether a program can resume from it.
#include "runtime/checkpoint/checkpoint_manifest.h"
#include "runtime/abi/compressions.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/support/concat.h"
#include "runtime/support/json_text.h"

#include <cstdio>
#include <cstdlib>

namespace fsdpc::runtime {

int64_t StoredLayout::elementBytes() const {
  return dtypeBytes(dtype) + states * int64_t(sizeof(float));
}

int64_t StoredLayout::compressionElements(size_t member) const {
  int64_t elements = 0;
  for (size_t i = 0; compression && i < members.size() && i < member; ++i)
    elements +=
        infoOf(compression).stateElements(compression.amount, members[i].shape);
  return elements;
}

// Names are stored as valid UTF-8, and compared in that form when a run
// resumes.
CheckpointManifest describeCheckpoint(const Manifest &manifest, int ranks,
                                      int groupRanks, bool trainedOnly) {
  CheckpointManifest stored;
  stored.ranks = ranks;
  std::vector<int> owners = ownersOf(manifest, ranks);
  for (size_t i = 0; i < owners.size(); ++i) {
    const Layout &layout = manifest.layouts[i];
    StoredLayout copy;
    copy.name = storedName(layout.name);
    copy.owner = owners[i];
    copy.shard = shardElements(layout, copy.owner == noOwner ? ranks : 1,
                               manifest.shardAlignment);
    copy.group = layout.inGroups ? groupRanks : 0;
    copy.states = layout.trainable ? layout.states : 0;
    copy.leftOut = trainedOnly && !layout.trainable;
    copy.average = layout.average;
    copy.optimizer = storedName(layout.optimizer);
    for (const std::string &name : layout.stateNames)
      copy.stateNames.push_back(storedName(name));
    copy.factored = layout.factored;
    copy.residual = layout.compression ? layout.elements : 0;
    if (layout.compression && infoOf(layout.compression).state)
      copy.compression = layout.compression;
    if (layout.noMaster || layout.ofBytes)
      copy.dtype = manifest.computeDtypeOf(layout);
    for (const Member &member : layout.members) {
      Member place;
      place.name = storedName(member.name);
      place.shape = member.shape;
      place.dtype = member.dtype;
      place.offset = member.offset;
      place.elements = member.elements;
      place.position = member.position;
      for (const std::string &alias : member.aliases)
        place.aliases.push_back(storedName(alias));
      copy.members.push_back(std::move(place));
    }
    stored.layouts.push_back(std::move(copy));
  }
  for (const Buffer &buffer : manifest.buffers) {
    Buffer copy;
    copy.name = storedName(buffer.name);
    copy.dtype = buffer.dtype;
    copy.shape = buffer.shape;
    copy.optimizerState = buffer.optimizerState;
    stored.buffers.push_back(std::move(copy));
  }
  return stored;
}

// The inverse of LayoutCut::ownOf: shard s is part s mod groups of the shard of
// rank s / groups in a group.
int64_t rankOfShard(const CheckpointManifest &stored,
                    const StoredLayout &layout, int64_t shard) {
  if (layout.owner != noOwner)
    return layout.owner;
  int64_t group = layout.group ? layout.group : stored.ranks;
  int64_t groups = stored.ranks / group;
  return shard % groups * group + shard / groups;
}

// The index keeps the names apart if two layouts are called the same.
std::vector<StoredTensor> tensorsOf(const CheckpointManifest &stored,
                                    int rank) {
  std::vector<StoredTensor> tensors;
  for (size_t i = 0; i < stored.layouts.size(); ++i) {
    const StoredLayout &layout = stored.layouts[i];
    std::string prefix = concat(i, ".", layout.name, ".");
    int64_t shard = layout.shardOf(rank);
    tensors.push_back({prefix + "master", layout.dtype, {shard}});
    for (int32_t state = 0; state < layout.states; ++state)
      tensors.push_back({concat(prefix, "state", state), "f32", {shard}});
    if (layout.residual > 0)
      tensors.push_back({prefix + "residual", "f32", {layout.residual}});
    if (layout.compression)
      tensors.push_back({prefix + infoOf(layout.compression).state->tensor,
                         "f32",
                         {rank == 0 ? layout.compressionElements() : 0}});
  }
  if (rank == 0)
    for (const Buffer &buffer : stored.buffers)
      tensors.push_back({"buffer." + buffer.name, buffer.dtype, buffer.shape});
  return tensors;
}

std::vector<std::string> storedNames(const Member &member) {
  std::vector<std::string> names = {storedName(member.name)};
  for (const std::string &alias : member.aliases)
    names.push_back(storedName(alias));
  return names;
}

std::string rankFileName(int64_t rank) {
  char name[48];
  std::snprintf(name, sizeof name, "rank-%05lld.safetensors",
                static_cast<long long>(rank));
  return name;
}

std::optional<int64_t> rankOfFile(const std::string &name) {
  if (name.rfind("rank-", 0) != 0)
    return {};
  int64_t rank = std::strtoll(name.c_str() + 5, nullptr, 10);
  if (rank < 0 || rankFileName(rank) != name) // not "rank-old.safetensors"
    return {};
  return rank;
}

} // namespace fsdpc::runtime
