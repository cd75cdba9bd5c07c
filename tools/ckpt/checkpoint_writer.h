// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes a checkpoint from other files, for any number of ranks.
#pragma once

#include "runtime/checkpoint/checkpoint_manifest.h"

#include <cstdint>
#include <functional>
#include <string>

namespace fsdpc::ckpt {

/// The source of the values. Part 0 of a parameter is its master, part 1 + s
/// its optimizer state s.
/// `parameter` writes `count` elements of one part to `to`, in f32, starting at
/// element `begin` of the parameter. It is called with at most checkpointPiece
/// bytes at a time. `buffer` writes a whole buffer in its own dtype. Both may
/// read files, so both can fail.
struct CheckpointValues {
  std::function<Status(const Member &member, int32_t part, int64_t begin,
                       int64_t count, float *to)>
      parameter;
  std::function<Status(const Buffer &buffer, void *to)> buffer;
  /// Writes bytes of a member of a layout of bytes. Called only if there are
  /// such layouts.
  std::function<Status(const Member &member, int64_t begin, int64_t count,
                       char *to)>
      bytes = {};
  /// Write elements of a rank's residual of a parameter, and the whole state of
  /// a compression (CompressionState). Called only if the layout has residuals,
  /// and such states.
  std::function<Status(const Member &member, int64_t rank, int64_t begin,
                       int64_t count, float *to)>
      residual = {};
  std::function<Status(const Member &member, const Compression &compression,
                       int64_t count, float *to)>
      compressionState = {};
};

/// Sets the number of ranks, and the elements per rank of each layout.
void cutFor(runtime::CheckpointManifest &stored, int64_t ranks);

/// Writes `folder`/step-NNNNNNN, where the step is that of `stored`, which has
/// no checksums yet. Fails if the folder has this checkpoint already or if a
/// run writes to it.
Status writeCheckpoint(runtime::CheckpointManifest stored,
                       const CheckpointValues &values,
                       const std::string &folder);

} // namespace fsdpc::ckpt
