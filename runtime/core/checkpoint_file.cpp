// Writes files of checkpoints and computes their checksums. The hash is a
// header of several thousand lines, so few files include it.
#include "runtime/core/checkpoint_file.h"
#include "runtime/core/safetensors.h"

#include <algorithm>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdpc::runtime {

const char checkpointManifestName[] = "/checkpoint.json";

struct Checksum::State {
  XXH64_state_t hash;
};

Checksum::Checksum() : state(std::make_unique<State>()) {
  XXH64_reset(&state->hash, 0);
}
Checksum::~Checksum() = default;

void Checksum::add(const void *data, uint64_t bytes) {
  XXH64_update(&state->hash, data, bytes);
}
uint64_t Checksum::value() const { return XXH64_digest(&state->hash); }

Result<uint64_t> checksumOf(const File &file, uint64_t offset, uint64_t bytes) {
  Checksum sum;
  std::vector<char> piece(std::min(bytes, checkpointPiece));
  for (uint64_t done = 0; done < bytes; done += checkpointPiece) {
    uint64_t length = std::min(checkpointPiece, bytes - done);
    FSDPC_TRY(file.read(offset + done, piece.data(), length));
    sum.add(piece.data(), length);
  }
  return sum.value();
}

// The header is known from the shapes alone, so it is written first and its
// checksum noted at once.
Status CheckpointFile::open(const std::string &folder, int64_t rank,
                            const std::vector<StoredTensor> &tensors,
                            StoredFile &noted) {
  SafeTensorsHeader header;
  for (const StoredTensor &tensor : tensors)
    header.add(tensor.name, tensor.dtype, tensor.shape, {});
  std::string text = header.text();
  sums = &noted;
  Checksum sum;
  sum.add(text.data(), text.size());
  sums->header = sum.value();
  end = text.size();
  current = std::make_unique<Checksum>();
  FSDPC_TRY(file.open(folder + "/" + rankFileName(rank)));
  return file.write(0, text.data(), text.size());
}

Status CheckpointFile::write(const void *data, uint64_t bytes) {
  current->add(data, bytes);
  FSDPC_TRY(file.write(end, data, bytes));
  end += bytes;
  return {};
}

void CheckpointFile::endTensor() {
  sums->tensors.push_back(current->value());
  current = std::make_unique<Checksum>();
}

// Renamed into place like every file, so a manifest that can be read is whole.
Status writeManifest(const std::string &folder,
                     const CheckpointManifest &stored) {
  NewFile file;
  std::string text = toJson(stored);
  FSDPC_TRY(file.open(folder + checkpointManifestName));
  FSDPC_TRY(file.write(0, text.data(), text.size()));
  return file.commit();
}

} // namespace fsdpc::runtime
