// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Hugging Face's layout of weights in a folder: model.safetensors, or several
// safetensors files and an index that says which tensor is in which.
#pragma once

#include "runtime/data/safetensors.h"

#include <string>
#include <vector>

namespace fsdpc::runtime {

/// Returns the folder of weights that `path` names, itself or by its index, or
/// "" if it names none.
std::string shardedFolder(const std::string &path);

/// Opens model.safetensors of a folder without an index, or the files that its
/// index names, in the order of their names.
/// The index comes from outside: a name in it must be that of a file in the
/// folder, and every tensor must be where the index says.
Result<std::vector<SafeTensors>> openSharded(const std::string &folder);

} // namespace fsdpc::runtime
