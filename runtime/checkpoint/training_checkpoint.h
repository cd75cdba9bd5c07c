// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checkpoints of a run: everything that the next step depends on, written by
// all ranks together and read by any number of them. Each rank writes its own
// shards as they lie; a rank that resumes reads the pieces of old shards that
// its new shards consist of. (--save, in checkpoint.h, writes whole parameters
// for other programs.)
#pragma once

#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/core/rank.h"

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fsdpc::runtime {

/// The outcome of something that all ranks do together: an error is this rank's
/// own, and `failed` is the lowest rank that has one, or -1.
struct Together {
  Status own;
  int failed = -1;
};

/// Writes checkpoints beside the training. `start` copies what a checkpoint
/// holds, and a thread of each rank writes the copy to its file (the stage
/// `writing`). When all files are on disk, a thread of rank 0 writes the
/// manifest and gives the folder its name (`publishing`). Neither thread
/// exchanges anything with other ranks: the training's own exchange tells when
/// all ranks are done with a stage, and then all call `advance`.
class CheckpointWriter {
public:
  /// A thread of rank 0 calls `published` when a checkpoint has its name. If
  /// `base` is not empty, frozen layouts are left out, and the checkpoints name
  /// their values by this hash (hashOfBase).
  CheckpointWriter(fsdpc_rank &rank, CheckpointFolder &folder, std::string base,
                   std::function<void(int64_t step)> published)
      : rank(rank), folder(folder), base(std::move(base)),
        published(std::move(published)) {}
  /// Waits for this rank's thread.
  ~CheckpointWriter();

  /// Allocates the copy. Without it `start` writes the memory of the rank
  /// itself before it returns. Call it before the first step; its bytes are in
  /// the memory plan.
  Status allocateCopy();

  /// Returns true while a checkpoint is being written, and the step that it is
  /// of.
  bool isActive() const { return stage != Stage::idle; }
  int64_t step() const { return stored.state.step; }
  /// Returns true if this rank has nothing more to do in this stage.
  bool isDone() const { return !busy.load(std::memory_order_acquire); }

  /// Begins a checkpoint; none may be active. `settings` are what the manifest
  /// says of the run. All ranks call it together.
  Together start(const TrainingState &state,
                 std::vector<std::pair<std::string, std::string>> settings);
  /// Waits until all ranks are done with the stage and begins the next one.
  /// After the last stage the checkpoint has its name; after a failure the
  /// folder is as it was; either way none is active. All ranks call it
  /// together.
  Together advance();
  /// Advances until none is active. Returns the first failure.
  Together finish();

private:
  enum class Stage { idle, writing, publishing };
  /// Memory of the rank, in the order of tensorsOf. `bytes` are those of the
  /// file, which may hold f32 where the memory holds a 16-bit type.
  struct Piece {
    const void *from; ///< null: in the file of what is offloaded
    uint64_t bytes;
    WireType type = WireType::f32; ///< f32: written as it lies
    /// For what is offloaded: the layout, the state or `parameterState`, and
    /// the first element in the rank's part.
    size_t layout = 0;
    int32_t state = 0;
    int64_t first = 0;
  };
  static constexpr int32_t parameterState = -1;
  CheckpointManifest describe() const;
  std::vector<Piece> pieces() const;
  Piece parameters(size_t layout) const;
  Status read(const Piece &piece, uint64_t done, uint64_t length,
              char *to) const;
  Status readRaw(const Piece &piece, uint64_t begin, uint64_t length,
                 char *to) const;
  Status copy();
  Status writeFile();
  void run(std::function<Status()> work);
  Status join();

  fsdpc_rank &rank;
  CheckpointFolder &folder;
  std::string base;
  std::function<void(int64_t step)> published;
  std::vector<char> copied;
  CheckpointManifest stored;
  StoredFile sums;
  Stage stage = Stage::idle;
  std::atomic<bool> busy = false;
  Status outcome;     ///< of the thread, once it has ended
  std::thread thread; ///< last member, since it uses all others
};

/// Bytes of a checkpoint of all ranks, and of the largest copy of a rank, both
/// without headers.
int64_t checkpointBytes(const CheckpointManifest &stored);
int64_t checkpointCopyBytes(const CheckpointManifest &stored);

/// Exchanges whether a rank has an error. All ranks call it together.
Together together(Job &job, Status own);

} // namespace fsdpc::runtime
