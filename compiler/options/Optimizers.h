// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The optimizers: what they are called, which hyperparameters they take and
// which defaults these have.
//
// A new optimizer needs an enumerator (Options.h), a row of this table, and the
// program that computes it (passes/shard/optimizers/Programs.cpp).
#pragma once

#include "compiler/options/Options.h"

#include "llvm/ADT/ArrayRef.h"

namespace fsdpc::fsdp {

/// A row of the table. Defaults are those of torch.optim; a number that the
/// optimizer does not take is 0. Hyperparameters of a single optimizer have
/// their defaults in CompileOptions. Hyperparameters are names in
/// OptionTable.cpp, which has their ranges and help.
struct OptimizerInfo {
  Optimizer optimizer;
  llvm::StringLiteral name;
  llvm::StringLiteral hyperparameters; ///< names of options, separated by '|'
  double lr;
  NumberPair betas = {};
  double eps = 0;
  double weightDecay = 0;
  double alpha = 0;
  double momentum = 0;
};

/// Returns all optimizers that have a name, in the order of the help.
llvm::ArrayRef<OptimizerInfo> allOptimizers();

/// Never fails: a user's program has a row of its own, outside of the table.
const OptimizerInfo &infoOf(Optimizer optimizer);

/// Returns true if the option of this name has an effect on the optimizer.
bool takes(const OptimizerInfo &info, llvm::StringRef option);

} // namespace fsdpc::fsdp
