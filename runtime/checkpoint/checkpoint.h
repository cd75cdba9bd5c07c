// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// --save, --save-ema and --save-gradients: safetensors files. Ranks send their
// shards to rank 0 piece by piece, so that no rank needs memory for a whole
// tensor.
#pragma once

#include "runtime/core/rank.h"
#include "runtime/support/new_file.h"
#include "runtime/support/renaming.h"
#include "runtime/support/status.h"

#include <string>

namespace fsdpc::runtime {

/// The average of a frozen parameter is the parameter.
enum class Saved { parameters, averages, gradients };

/// What a file has of the parameters, and under which names.
struct SavedForm {
  /// If it is not empty, frozen parameters are left out, and the file names
  /// their values by this hash (hashOfBase).
  std::string base;
  Renaming names;
};

/// Fails if the names of a file in this form are not all different.
Status checkNames(const Manifest &manifest, const Renaming &names,
                  bool trainedOnly);

/// Saves parameters, their averages or gradients. All ranks call it together
/// and rank 0 writes, to a temporary file that replaces `path` once all of it
/// is on disk. Only rank 0 can fail, and takes part to the end all the same.
Status save(fsdpc_rank &rank, Saved what, const std::string &path,
            const SavedForm &form = {});
/// The same, except that rank 0 may still decide: `file`, which is not open
/// yet, is opened for `path` there, and committed by the caller or dropped.
Status saveUncommitted(fsdpc_rank &rank, Saved what, const std::string &path,
                       const SavedForm &form, NewFile &file);

} // namespace fsdpc::runtime
