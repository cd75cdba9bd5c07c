// Writes and reads checkpoints. Checksums of all files meet in the manifest,
// which rank 0 writes when every rank's file is on disk; then the folder gets
// its name. So a checkpoint is whole or it is not there, and files of two
// checkpoints cannot be mixed.
#include "runtime/core/training_checkpoint.h"
#include "runtime/core/new_file.h"
#include "runtime/core/spelling.h"
#include "shared/memory_plan.h"

#include <algorithm>
#include <memory>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdpc::runtime {
namespace {

constexpr uint64_t pieceBytes = 4 << 20;
constexpr uint64_t mostManifestBytes = 100000000;
const char manifestName[] = "/checkpoint.json";

// XXH64 with seed 0, piece by piece.
class Hash {
public:
  Hash() : state(XXH64_createState(), XXH64_freeState) {
    XXH64_reset(state.get(), 0);
  }
  void add(const void *data, uint64_t bytes) {
    XXH64_update(state.get(), data, bytes);
  }
  uint64_t value() const { return XXH64_digest(state.get()); }

private:
  std::unique_ptr<XXH64_state_t, XXH_errorcode (*)(XXH64_state_t *)> state;
};

Result<uint64_t> checksumOf(const File &file, uint64_t offset, uint64_t bytes) {
  Hash hash;
  std::vector<char> piece(std::min(bytes, pieceBytes));
  for (uint64_t done = 0; done < bytes; done += pieceBytes) {
    uint64_t length = std::min(pieceBytes, bytes - done);
    FSDPC_TRY(file.read(offset + done, piece.data(), length));
    hash.add(piece.data(), length);
  }
  return hash.value();
}

Error damaged(const std::string &path) {
  return {"'" + path + "' is damaged: its checksum is wrong"};
}

// Writes this rank's file tensor by tensor, and notes their checksums.
class RankFile {
public:
  RankFile(fsdpc_rank &rank, StoredFile &sums) : rank(rank), sums(sums) {}

  Status open(const std::string &path,
              const std::vector<StoredTensor> &tensors) {
    SafeTensorsHeader header;
    for (const StoredTensor &tensor : tensors)
      header.add(tensor.name, tensor.dtype, tensor.shape, {});
    std::string text = header.text();
    Hash hash;
    hash.add(text.data(), text.size());
    sums.header = hash.value();
    end = text.size();
    FSDPC_TRY(file.open(path));
    return file.write(0, text.data(), text.size());
  }
  Status add(const void *from, uint64_t bytes) {
    bool host = rank.device->isHostMemory();
    Hash hash;
    for (uint64_t done = 0; done < bytes; done += pieceBytes) {
      uint64_t length = std::min(pieceBytes, bytes - done);
      const char *piece = static_cast<const char *>(from) + done;
      if (!host) {
        staging.resize(pieceBytes);
        rank.device->download(staging.data(), piece, length);
        piece = staging.data();
      }
      hash.add(piece, length);
      FSDPC_TRY(file.write(end, piece, length));
      end += length;
    }
    sums.tensors.push_back(hash.value());
    return {};
  }
  Status commit() { return file.commit(); }

private:
  fsdpc_rank &rank;
  StoredFile &sums;
  NewFile file;
  uint64_t end = 0;
  std::vector<char> staging;
};

// In the order of tensorsOf.
Status writeRankFile(fsdpc_rank &rank, const CheckpointManifest &stored,
                     const std::string &folder, StoredFile &sums) {
  RankFile file(rank, sums);
  FSDPC_TRY(file.open(folder + "/" + rankFileName(rank.job.rank),
                      tensorsOf(stored, rank.job.rank)));
  for (size_t i = 0; i < stored.layouts.size(); ++i) {
    const LayoutBuffers &buffers = rank.layouts[i];
    uint64_t bytes = uint64_t(buffers.own) * sizeof(float);
    // Of several replicas of a shard each writes a part.
    int64_t own = buffers.ownOf(rank.job.rank);
    FSDPC_TRY(file.add(
        buffers.masterShard + own - buffers.shardOf(rank.job.rank), bytes));
    // Replicated states hold this rank's shard at its place.
    int64_t first = own - buffers.partBegin;
    for (int32_t state = 0; state < stored.layouts[i].states; ++state)
      FSDPC_TRY(file.add(buffers.states + state * buffers.part + first, bytes));
  }
  for (size_t i = 0; i < stored.buffers.size() && rank.job.rank == 0; ++i)
    FSDPC_TRY(file.add(rank.buffers[i],
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

Status writeManifest(const std::string &folder,
                     const CheckpointManifest &stored) {
  NewFile file;
  std::string text = toJson(stored);
  FSDPC_TRY(file.open(folder + manifestName));
  FSDPC_TRY(file.write(0, text.data(), text.size()));
  return file.commit();
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

Result<TrainingCheckpoint> TrainingCheckpoint::open(const std::string &folder) {
  std::string path = folder + manifestName;
  Result<File> file = File::open(path);
  FSDPC_TRY(file);
  if (file->size() > mostManifestBytes)
    return Error{"'" + path + "' is not a manifest of a checkpoint"};
  std::string text(file->size(), '\0');
  FSDPC_TRY(file->read(0, text.data(), text.size()));
  Result<CheckpointManifest> parsed = parseCheckpoint(text);
  if (!parsed)
    return Error{"'" + path + "' is damaged: " + parsed.error().message};
  TrainingCheckpoint checkpoint;
  checkpoint.stored = std::move(*parsed);
  FSDPC_TRY(checkpoint.openFiles(folder));
  return checkpoint;
}

// Every file must hold exactly the tensors that the manifest describes, so
// later reads need no checks.
Status TrainingCheckpoint::openFiles(const std::string &folder) {
  size_t tensor = 0;
  for (size_t i = 0; i < stored.layouts.size(); ++i) {
    firstOf.push_back(tensor);
    tensor += 1 + size_t(stored.layouts[i].states);
    for (const Member &member : stored.layouts[i].members)
      places[member.name] = {i, member.offset};
  }
  for (size_t rank = 0; rank < stored.files.size(); ++rank) {
    std::string path = folder + "/" + rankFileName(int64_t(rank));
    Result<SafeTensors> opened = SafeTensors::open(path);
    FSDPC_TRY(opened);
    files.push_back(std::move(*opened));
    std::vector<StoredTensor> wanted = tensorsOf(stored, int(rank));
    if (stored.files[rank].tensors.size() != wanted.size() ||
        files[rank].tensors().size() != wanted.size())
      return Error{"'" + path + "' does not have the tensors of its manifest"};
    tensors.emplace_back();
    for (const StoredTensor &expected : wanted) {
      const SafeTensor *found = files[rank].find(expected.name, {});
      if (!found || found->dtype != expected.dtype ||
          found->shape != expected.shape)
        return Error{"'" + path + "' does not have '" +
                     printable(expected.name) + "' as its manifest says"};
      tensors[rank].push_back(found);
    }
  }
  return {};
}

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
    const SafeTensor *tensor =
        tensors[file][firstOf[place.layout] + size_t(part)];
    FSDPC_TRY(files[file].file().read(tensor->offset +
                                          uint64_t(within) * sizeof(float),
                                      to, uint64_t(now) * sizeof(float)));
    at += now;
    to += now;
    count -= now;
  }
  return {};
}

Status TrainingCheckpoint::readMaster(const Member &member, int64_t begin,
                                      int64_t count, float *to) const {
  return readLayout(places.at(storedName(member.name)), 0, begin, count, to);
}

Status TrainingCheckpoint::readState(const Member &member, int32_t state,
                                     int64_t begin, int64_t count,
                                     float *to) const {
  const Place &place = places.at(storedName(member.name));
  if (stored.layouts[place.layout].states > 0)
    return readLayout(place, 1 + state, begin, count, to);
  std::fill_n(to, count, 0.0f);
  return {};
}

Status TrainingCheckpoint::readBuffer(const Buffer &buffer, void *to) const {
  const SafeTensor *tensor =
      files[0].find("buffer." + storedName(buffer.name), {});
  return files[0].file().read(tensor->offset, to, tensor->bytes);
}

} // namespace fsdpc::runtime
