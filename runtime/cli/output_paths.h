// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps a run from overwriting its own files.
#pragma once

#include "runtime/support/status.h"

#include <string>
#include <vector>

namespace fsdpc::runtime {

/// A path of the command line, or one that the program knows by itself.
struct RunFile {
  std::string use; ///< for messages: "--save", "the data of input 'ids'"
  std::string path;
};

/// Fails if two of `outputs`, or one of them and one of `inputs`, are one file:
/// the same path, two spellings of it, or links to one file. Files that do not
/// exist yet are compared by their folder and name.
Status checkDistinct(const std::vector<RunFile> &outputs,
                     const std::vector<RunFile> &inputs);

} // namespace fsdpc::runtime
