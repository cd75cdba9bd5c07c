// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// --save, --save-ema and --save-gradients: safetensors files. Ranks send their
// shards to rank 0 piece by piece, so that no rank needs memory for a whole
// tensor.
#pragma once

#include "runtime/core/rank.h"
#include "runtime/support/new_file.h"
#include "runtime/support/status.h"

#include <string>

namespace fsdpc::runtime {

/// The average of a frozen parameter is the parameter.
enum class Saved { parameters, averages, gradients };

/// Saves parameters, their averages or gradients. All ranks call it together
/// and rank 0 writes, to a temporary file that replaces `path` once all of it
/// is on disk. Only rank 0 can fail, and takes part to the end all the same.
/// If `base` is not empty, frozen parameters are left out, and the file names
/// their values by this hash (hashOfBase).
Status save(fsdpc_rank &rank, Saved what, const std::string &path,
            const std::string &base = "");
/// The same, except that rank 0 may still decide: `file`, which is not open
/// yet, is opened for `path` there, and committed by the caller or dropped.
Status saveUncommitted(fsdpc_rank &rank, Saved what, const std::string &path,
                       const std::string &base, NewFile &file);

} // namespace fsdpc::runtime
