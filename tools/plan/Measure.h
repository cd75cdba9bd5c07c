// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// `fsdpc tune --measure`: runs plans on this machine.
#pragma once

#include "tools/plan/Search.h"

namespace fsdpc::plan {

/// Compiles the `count` fastest plans for the host and runs a few steps of each
/// under mpirun, on inputs made up here. Prints predicted and measured steps.
llvm::LogicalResult measure(Planner &planner, const SearchRequest &request,
                            const SearchResult &result, int64_t count);

} // namespace fsdpc::plan
