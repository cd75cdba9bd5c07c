// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// --info: a description of the program for a person to read, with its memory
// table for several numbers of ranks.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/cli/command_line.h"

#include <string>

namespace fsdpc::runtime {

/// The memory table is for the threads and shard groups of the options, or else
/// for those that the program was planned for. With --checkpoint-every it has a
/// row for the copy from which checkpoints are written.
std::string infoText(const Manifest &manifest, const Options &options);

} // namespace fsdpc::runtime
