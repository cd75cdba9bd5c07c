// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The optimizer and hyperparameters of a --group. A group names an optimizer
// and hyperparameters as torch.optim's param_groups do; everything else follows
// from the options (CompileOptions::ofGroup).
#pragma once

#include "compiler/options/Options.h"

namespace fsdpc::fsdp {

/// Checks what the groups set against their optimizers. Returns an empty string
/// or an error that names the group.
std::string checkGroups(const CompileOptions &options);

/// Returns for each group the number, from 1, of the first one that has the
/// same optimizer with the same hyperparameters, or 0 where these are the
/// options' own. Learning rate and weight decay do not count: each member of a
/// layout has its own.
std::vector<size_t> programsOf(const CompileOptions &options);

} // namespace fsdpc::fsdp
