// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The hash of a run's frozen parameters, by which a file of trained parameters
// or a checkpoint of them names the base that it belongs to.
#pragma once

#include "runtime/core/rank.h"
#include "runtime/support/status.h"

#include <functional>
#include <string>

namespace fsdpc::runtime {

/// Returns the name of a parameter that counts in the hash: the first by the
/// alphabet of all that a tied one has, since programs differ in the one that
/// they chose.
const std::string &nameOfBase(const Member &member);

/// Returns the hash of the names and values, as f32, of those frozen parameters
/// for which `isPart` is true, in 16 digits: the same for every number of ranks
/// and every strategy. All ranks call it together; one that cannot read what it
/// has offloaded fails alone.
Result<std::string>
hashOfBase(fsdpc_rank &rank, const std::function<bool(const Member &)> &isPart);

} // namespace fsdpc::runtime
