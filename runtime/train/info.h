// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// --info: a description of the program for a person to read, with its memory
// table for several numbers of ranks.
#pragma once

#include "runtime/abi/manifest.h"

#include <string>

namespace fsdpc::runtime {

/// `threads` per rank and the ranks of a shard group are for the memory table;
/// 0 takes what the program was planned for. With `checkpoints` the table has a
/// row for the copy that they are written from.
std::string infoText(const Manifest &manifest, int threads, int shardGroup,
                     bool checkpoints);

} // namespace fsdpc::runtime
