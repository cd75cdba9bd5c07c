// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The resources that the machine gives this process: cores, resident memory,
// instruction set extensions.
#pragma once

#include "runtime/comm/communicator.h"

#include <cstdint>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// The cores that a rank may use, and how many ranks of the host compete for
/// them.
struct Cores {
  int bound = 1;    ///< cores that this rank may run on
  int sharing = 1;  ///< ranks that may run on some of them, this one included
  std::string list; ///< "0-3,8"
  int share() const { return bound / sharing > 0 ? bound / sharing : 1; }
};
/// Finds the cores of this rank. All ranks call it together, since it exchanges
/// affinity masks on the control channel.
Cores findCores(Job &job);

/// Returns the peak resident set of this process in bytes (VmHWM), or 0 if
/// unknown.
int64_t peakResidentBytes();

/// Returns those of `features` (LLVM's names) that this processor lacks or its
/// kernel has switched off.
std::vector<std::string>
lackingFeatures(const std::vector<std::string> &features);

/// Returns those of `features` that `cpuinfo` does not list, which is the text
/// of /proc/cpuinfo: none if it has no list, as where /proc is not mounted.
std::vector<std::string>
unlistedFeatures(const std::vector<std::string> &features,
                 const std::string &cpuinfo);

} // namespace fsdpc::runtime
