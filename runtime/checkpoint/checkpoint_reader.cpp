// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Opens checkpoints and finds elements in the files of their ranks. When a
// checkpoint is opened, every file is compared with the manifest, so later
// reads need no checks of their own.
#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/checkpoint/checkpoint_file.h"
#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/numeric/dtype.h"
#include "runtime/support/concat.h"
#include "runtime/support/json_text.h"
#include "runtime/support/spelling.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unistd.h>
#include <utility>

namespace fsdpc::runtime {
namespace {

// Far more than any manifest has; larger files are something else.
constexpr uint64_t mostManifestBytes = 100000000;

Error damaged(const std::string &path) {
  return inputError("'" + path + "' is damaged: its checksum is wrong");
}

Result<std::string> readText(const Result<File> &file) {
  FSDPC_TRY(file);
  if (file->size() > mostManifestBytes)
    return inputError("'" + file->path() +
                      "' is not a manifest of a checkpoint");
  std::string text(file->size(), '\0');
  FSDPC_TRY(file->read(0, text.data(), text.size()));
  return text;
}

Result<CheckpointManifest> readManifest(const Result<File> &file) {
  Result<std::string> text = readText(file);
  FSDPC_TRY(text);
  if (auto later = laterFormat(*text))
    return inputError("'" + file->path() + "' has " + *later +
                      "; use the version of fsdpc that wrote it");
  Result<CheckpointManifest> parsed = parseCheckpoint(*text);
  if (!parsed)
    return inputError("'" + file->path() +
                      "' is damaged: " + parsed.error().message);
  return parsed;
}

} // namespace

Result<CheckpointManifest> readCheckpointManifest(const std::string &folder) {
  return readManifest(File::open(folder + "/" + checkpointManifestName));
}

Result<CheckpointManifest> readCheckpointManifest(const Folder &folder) {
  return readManifest(folder.openFile(checkpointManifestName));
}

// Fails if this user may not read a file that is there.
static Status checkPermission(const std::string &path) {
  if (access(path.c_str(), R_OK) == 0 || (errno != EACCES && errno != EPERM))
    return {};
  return inputError(
      "no permission to read '" + path +
      "'; let this user read it, or name an earlier checkpoint with "
      "--resume=STEP");
}

Status checkReadable(const std::string &folder) {
  std::string path = folder + "/" + checkpointManifestName;
  FSDPC_TRY(checkPermission(path));
  Result<std::string> text = readText(File::open(path));
  if (auto later = text ? laterFormat(*text) : std::nullopt)
    return inputError(
        "'" + path + "' has " + *later +
        "; resume with a program of the fsdpc that wrote it, or name "
        "an earlier checkpoint with --resume=STEP");
  auto parsed = readCheckpointManifest(folder);
  for (int64_t rank = 0; parsed && rank < parsed->ranks; ++rank)
    FSDPC_TRY(checkPermission(folder + "/" + rankFileName(rank)));
  return {};
}

Result<TrainingCheckpoint> TrainingCheckpoint::open(const std::string &folder) {
  Result<CheckpointManifest> manifest = readCheckpointManifest(folder);
  FSDPC_TRY(manifest);
  auto named = CheckpointFolder::stepIn(folder);
  if (named && *named != manifest->state.step)
    return inputError(concat("'", folder, "' holds the checkpoint of step ",
                             manifest->state.step,
                             "; a copy must keep the name of its step"));
  TrainingCheckpoint checkpoint;
  checkpoint.stored = std::move(*manifest);
  FSDPC_TRY(checkpoint.openFiles(folder));
  return checkpoint;
}

// Every file must hold exactly the tensors that the manifest describes, so
// later reads need no checks.
Status TrainingCheckpoint::openFiles(const std::string &folder) {
  size_t tensor = 0;
  for (size_t i = 0; i < stored.layouts.size(); ++i) {
    firstOf.push_back(tensor);
    tensor += stored.layouts[i].tensors();
    for (size_t m = 0; m < stored.layouts[i].members.size(); ++m) {
      const Member &member = stored.layouts[i].members[m];
      places[member.name] = {i, m, member.offset};
      for (const std::string &alias : member.aliases)
        places.try_emplace(alias, Place{i, m, member.offset});
    }
  }
  for (size_t rank = 0; rank < stored.files.size(); ++rank) {
    std::string path = folder + "/" + rankFileName(int64_t(rank));
    Result<SafeTensors> opened = SafeTensors::open(path);
    FSDPC_TRY(opened);
    files.push_back(std::move(*opened));
    std::vector<StoredTensor> wanted = tensorsOf(stored, int(rank));
    if (stored.files[rank].tensors.size() != wanted.size() ||
        files[rank].tensors().size() != wanted.size())
      return inputError("'" + path +
                        "' does not have the tensors of its manifest");
    tensors.emplace_back();
    for (const StoredTensor &expected : wanted) {
      const SafeTensor *found = files[rank].find(expected.name, {});
      if (!found || found->dtype != expected.dtype ||
          found->shape != expected.shape)
        return inputError("'" + path + "' does not have '" +
                          printable(expected.name) + "' as its manifest says");
      tensors[rank].push_back(found);
    }
  }
  return {};
}

// Rank r of N checks files r, r + N, …: together the ranks read each byte once.
Status TrainingCheckpoint::verify(int rank, int ranks) const {
  for (size_t file = size_t(rank); file < files.size(); file += size_t(ranks)) {
    const File &source = files[file].file();
    // The header ends where the first tensor begins.
    uint64_t data = source.size();
    for (const SafeTensor *tensor : tensors[file])
      data = std::min(data, tensor->offset);
    auto header = checksumOf(source, 0, data);
    FSDPC_TRY(header);
    if (*header != stored.files[file].header)
      return damaged(source.path());
    for (size_t i = 0; i < tensors[file].size(); ++i) {
      auto hash =
          checksumOf(source, tensors[file][i]->offset, tensors[file][i]->bytes);
      FSDPC_TRY(hash);
      if (*hash != stored.files[file].tensors[i])
        return damaged(source.path());
    }
  }
  return {};
}

// Reads elements of a tensor of a file as f32. Narrower elements are read to
// the end of the destination, so widening them from the front overwrites only
// elements that were read.
Status TrainingCheckpoint::readTensor(size_t file, size_t tensor, int64_t begin,
                                      int64_t count, float *to) const {
  const SafeTensor *from = tensors[file][tensor];
  uint64_t each = uint64_t(dtypeBytes(from->dtype));
  auto *bytes =
      reinterpret_cast<char *>(to) + uint64_t(count) * (sizeof(float) - each);
  FSDPC_TRY(files[file].file().read(from->offset + uint64_t(begin) * each,
                                    bytes, uint64_t(count) * each));
  if (each < sizeof(float))
    convert(bytes, from->dtype, to, "f32", count);
  return {};
}

// Reads elements of a layout's part: 0 for the masters, 1 + s for state s. They
// may lie in the shards of several ranks.
Status TrainingCheckpoint::readLayout(const Place &place, int32_t part,
                                      int64_t begin, int64_t count,
                                      float *to) const {
  const StoredLayout &layout = stored.layouts[place.layout];
  int64_t shard = layout.shard;
  int64_t at = place.offset + begin;
  while (count > 0) {
    int64_t within = at % shard, now = std::min(count, shard - within);
    size_t file = size_t(rankOfShard(stored, layout, at / shard));
    FSDPC_TRY(readTensor(file, firstOf[place.layout] + size_t(part), within,
                         now, to));
    at += now;
    to += now;
    count -= now;
  }
  return {};
}

// checkSameModel has found one of its names.
const TrainingCheckpoint::Place &
TrainingCheckpoint::placeOf(const Member &member) const {
  std::vector<std::string> names = storedNames(member);
  auto found = places.find(names[0]);
  for (size_t i = 1; found == places.end() && i < names.size(); ++i)
    found = places.find(names[i]);
  return found->second;
}

Status TrainingCheckpoint::readMaster(const Member &member, int64_t begin,
                                      int64_t count, float *to) const {
  return readLayout(placeOf(member), 0, begin, count, to);
}

// As readLayout, in bytes. Those of a member may lie in the shards of several
// ranks.
Status TrainingCheckpoint::readBytes(const Member &member, int64_t begin,
                                     int64_t count, char *to) const {
  const Place &place = placeOf(member);
  const StoredLayout &layout = stored.layouts[place.layout];
  for (int64_t at = place.offset + begin; count > 0;) {
    int64_t within = at % layout.shard,
            now = std::min(count, layout.shard - within);
    auto file = size_t(rankOfShard(stored, layout, at / layout.shard));
    const SafeTensor *from = tensors[file][firstOf[place.layout]];
    FSDPC_TRY(files[file].file().read(from->offset + uint64_t(within), to,
                                      uint64_t(now)));
    at += now;
    to += now;
    count -= now;
  }
  return {};
}

int32_t TrainingCheckpoint::stateOf(const Layout &layout, const Member &member,
                                    int32_t state) const {
  const std::vector<std::string> &have =
      stored.layouts[placeOf(member).layout].stateNames;
  auto find = [&](const std::string &name) {
    return std::find(have.begin(), have.end(), storedName(name));
  };
  bool isKnown = std::all_of(
      layout.stateNames.begin(), layout.stateNames.end(),
      [&](const std::string &name) { return find(name) != have.end(); });
  if (layout.stateNames.empty() || !isKnown)
    return state;
  return int32_t(find(layout.stateNames[size_t(state)]) - have.begin());
}

Status TrainingCheckpoint::readState(const Member &member, int32_t state,
                                     int64_t begin, int64_t count,
                                     float *to) const {
  const Place &place = placeOf(member);
  if (stored.layouts[place.layout].ownStates() > 0)
    return readLayout(place, 1 + state, begin, count, to);
  std::fill_n(to, count, 0.0f);
  return {};
}

std::optional<int64_t> TrainingCheckpoint::since(const Layout &layout,
                                                 const Member &member) const {
  const Place &place = placeOf(member);
  const StoredLayout &home = stored.layouts[place.layout];
  int32_t own = layout.states - int32_t(layout.average);
  // A converted checkpoint does not say whose its averages of rows and columns
  // are.
  bool isSame = home.optimizer == layout.optimizer ||
                (home.optimizer.empty() && home.factored && layout.factored);
  if (home.ownStates() == 0 && (own > 0 || !isSame))
    return std::nullopt;
  return home.sinceOf(place.member);
}

Status TrainingCheckpoint::readResidual(const Member &member, int64_t rank,
                                        int64_t ranks, int64_t begin,
                                        int64_t count, float *to) const {
  const Place &place = placeOf(member);
  const StoredLayout &layout = stored.layouts[place.layout];
  if (layout.residual == 0 || rank >= stored.ranks) {
    std::fill_n(to, count, 0.0f);
    return {};
  }
  size_t tensor = firstOf[place.layout] + 1 + size_t(layout.states);
  int64_t first = place.offset + begin;
  FSDPC_TRY(readTensor(size_t(rank), tensor, first, count, to));
  constexpr int64_t most = int64_t(checkpointPiece / sizeof(float));
  std::vector<float> piece;
  for (int64_t from = rank + ranks; from < stored.ranks; from += ranks)
    for (int64_t at = 0; at < count; at += most) {
      piece.resize(size_t(std::min(most, count - at)));
      FSDPC_TRY(readTensor(size_t(from), tensor, first + at,
                           int64_t(piece.size()), piece.data()));
      for (size_t i = 0; i < piece.size(); ++i)
        to[at + int64_t(i)] += piece[i];
    }
  return {};
}

// It follows the residual.
Status TrainingCheckpoint::readCompressionState(const Member &member,
                                                const Compression &compression,
                                                int64_t begin, int64_t count,
                                                float *to) const {
  const Place &place = placeOf(member);
  const StoredLayout &layout = stored.layouts[place.layout];
  if (layout.compression == compression)
    return readTensor(0, firstOf[place.layout] + 2 + size_t(layout.states),
                      layout.compressionElements(place.member) + begin, count,
                      to);
  std::fill_n(to, count, 0.0f);
  return {};
}

// The average is the last state. Without one it begins at the parameters.
Status TrainingCheckpoint::readAverage(const Member &member, int64_t begin,
                                       int64_t count, float *to) const {
  const Place &place = placeOf(member);
  const StoredLayout &layout = stored.layouts[place.layout];
  return readLayout(place, layout.average ? layout.states : 0, begin, count,
                    to);
}

Status TrainingCheckpoint::readBuffer(const Buffer &buffer, void *to) const {
  const SafeTensor *tensor =
      files[0].find("buffer." + storedName(buffer.name), {});
  // That of a parameter which another optimizer updated, or none.
  if (!tensor) {
    std::memset(to, 0, size_t(bufferElements(buffer) * sizeof(float)));
    return {};
  }
  return files[0].file().read(tensor->offset, to, tensor->bytes);
}

} // namespace fsdpc::runtime
