// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes files of checkpoints and computes their checksums. All bytes pass
// through a block of 1 MiB, since a disk takes only aligned memory directly.
// The hash is a header of several thousand lines, so few files include it.
#include "runtime/checkpoint/checkpoint_file.h"
#include "runtime/data/safetensors.h"

#include <algorithm>
#include <cstring>
#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdpc::runtime {

const char checkpointManifestName[] = "checkpoint.json";

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

// Large enough for a disk's full rate, small enough to stay in the cache of a
// core between the checksum, the copy and the disk.
static constexpr uint64_t blockSize = 1 << 20;
static_assert(blockSize % directAlignment == 0);

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
  current = std::make_unique<Checksum>();
  block.reset(
      static_cast<char *>(std::aligned_alloc(directAlignment, blockSize)));
  if (!block)
    throw std::bad_alloc();
  FSDPC_TRY(file.open(folder + "/" + rankFileName(rank)));
  file.setDirect(true);
  return append(text.data(), text.size());
}

Status CheckpointFile::write(const void *data, uint64_t bytes) {
  auto *from = static_cast<const char *>(data);
  while (bytes > 0) {
    uint64_t count = std::min(bytes, blockSize);
    current->add(from, count);
    FSDPC_TRY(append(from, count));
    from += count;
    bytes -= count;
  }
  return {};
}

Status CheckpointFile::append(const void *data, uint64_t bytes) {
  auto *from = static_cast<const char *>(data);
  while (bytes > 0) {
    uint64_t count = std::min(bytes, blockSize - blockBytes);
    std::memcpy(block.get() + blockBytes, from, count);
    blockBytes += count;
    from += count;
    bytes -= count;
    if (blockBytes == blockSize)
      FSDPC_TRY(flush());
  }
  return {};
}

Status CheckpointFile::flush() {
  FSDPC_TRY(file.write(blockOffset, block.get(), blockBytes));
  blockOffset += blockBytes;
  blockBytes = 0;
  return {};
}

// The rest is no whole number of a disk's blocks.
Status CheckpointFile::commit() {
  file.setDirect(false);
  FSDPC_TRY(flush());
  return file.commit();
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
  FSDPC_TRY(file.open(folder + "/" + checkpointManifestName));
  FSDPC_TRY(file.write(0, text.data(), text.size()));
  return file.commit();
}

} // namespace fsdpc::runtime
