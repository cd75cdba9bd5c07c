// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A rank's file of a checkpoint, written from its first byte to its last: the
// tensors in the order of tensorsOf, each with a checksum that the manifest
// keeps. Runs write it from their memory, `fsdpc ckpt` from other files.
//
// It passes the page cache by, since training goes on meanwhile: copying a
// gigabyte into fresh pages of the cache takes a core up to 1.7 s, writing it
// directly 0.03 s.
#pragma once

#include "runtime/checkpoint/checkpoint_manifest.h"
#include "runtime/support/file.h"
#include "runtime/support/new_file.h"

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// Bytes that readers and writers of checkpoints hold at once.
constexpr uint64_t checkpointPiece = 4 << 20;

/// XXH64 with seed 0, piece by piece. Feeding the same bytes in other pieces
/// gives the same value.
class Checksum {
public:
  Checksum();
  ~Checksum();
  void add(const void *data, uint64_t bytes);
  uint64_t value() const;

private:
  struct State;
  std::unique_ptr<State> state;
};

/// Returns the checksum of `bytes` bytes from `offset`.
Result<uint64_t> checksumOf(const File &file, uint64_t offset, uint64_t bytes);

/// Call open, then for each tensor write as often as needed and endTensor, then
/// commit. The file has its name only after commit.
class CheckpointFile {
public:
  /// Begins the file of one rank in `folder`, and notes checksums in `sums`,
  /// which must outlive this object.
  Status open(const std::string &folder, int64_t rank,
              const std::vector<StoredTensor> &tensors, StoredFile &sums);
  /// Appends bytes of the current tensor.
  Status write(const void *data, uint64_t bytes);
  /// Ends the current tensor.
  void endTensor();
  Status commit();

private:
  Status append(const void *data, uint64_t bytes);
  Status flush();

  struct Free {
    void operator()(char *memory) const { std::free(memory); }
  };
  StoredFile *sums = nullptr;
  NewFile file;
  std::unique_ptr<char, Free> block; ///< aligned, what is not written yet
  uint64_t blockBytes = 0;
  uint64_t blockOffset = 0; ///< in the file
  std::unique_ptr<Checksum> current;
};

/// Writes the manifest of a checkpoint whose files are all on disk.
Status writeManifest(const std::string &folder,
                     const CheckpointManifest &stored);

/// The manifest's name in the folder.
extern const char checkpointManifestName[];

} // namespace fsdpc::runtime
