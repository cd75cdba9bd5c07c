// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds checkpoints, and reads one as a list of whole tensors.
#pragma once

#include "runtime/checkpoint/checkpoint_reader.h"
#include "tools/ckpt/source.h"

#include <optional>
#include <string>
#include <vector>

namespace fsdpc::ckpt {

/// Returns the folders of the checkpoints at a path, oldest first: the path
/// itself if it has a manifest, else its folders step-NNNNNNN. There is at
/// least one.
Result<std::vector<std::string>> findCheckpoints(const std::string &path);
/// Returns the one of `step`, or the newest.
Result<std::string> findCheckpoint(const std::string &path,
                                   std::optional<int64_t> step);

/// Opens a checkpoint and compares all of its checksums.
Result<runtime::TrainingCheckpoint> openWhole(const std::string &path,
                                              std::optional<int64_t> step);

/// Opens a checkpoint as a list of tensors in which each parameter is whole,
/// whatever the ranks and layouts that it is stored under. Compares all
/// checksums first, so a read that succeeds afterwards returns what the run has
/// written. `step` as in findCheckpoint.
Result<std::unique_ptr<TensorSource>>
openCheckpointTensors(const std::string &path, Content content,
                      std::optional<int64_t> step);

/// Returns the value of a setting, or "" if the checkpoint has none.
std::string settingOf(const runtime::CheckpointManifest &stored,
                      const std::string &name);
/// Returns the names of a layout's states ("exp_avg"), or "state0" … where the
/// checkpoint has none; last "ema" of the average.
std::vector<std::string> stateNames(const runtime::StoredLayout &layout);

} // namespace fsdpc::ckpt
