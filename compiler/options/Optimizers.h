// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The optimizers: what each is called, what it keeps and takes of a parameter,
// which hyperparameters it has and their defaults.
//
// A new optimizer needs a row of this table, and a program of the same name
// (passes/shard/optimizers/). Layouts carry what the row says to the verifiers,
// the plans, the runtime and checkpoints (fsdp.layout's `optimizer`, the
// manifest's Layout), so nothing else knows an optimizer by its name.
#pragma once

#include "compiler/options/NameLists.h"
#include "compiler/options/Options.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

namespace fsdpc::fsdp {

/// A row of the table. Lists of names lie in one string, separated by '|', so
/// that the table can be constexpr. Defaults are those of torch.optim; a number
/// that the optimizer does not take is 0. Hyperparameters of a single optimizer
/// have their defaults in CompileOptions.
struct OptimizerInfo {
  llvm::StringLiteral name;
  /// Options that have an effect on it. OptionTable.cpp has their ranges and
  /// help.
  llvm::StringLiteral hyperparameters;
  /// The f32 states of an element, in the order of the program's arguments, by
  /// their names in torch.optim's state_dict, since checkpoints and exports use
  /// them. "NAME?OPTION" is kept only if the hyperparameter is not 0 or false.
  /// Empty for a program of the user's, whose text names them.
  llvm::StringLiteral states = "";
  /// Sums over a whole parameter that its program takes, named as in a dump.
  llvm::StringLiteral sums = "";
  /// The program takes an average of squares that follows from averages along
  /// rows and columns (runtime/abi/factors.h), and keeps no state for it.
  bool isFactored = false;
  /// The program takes updates of whole matrices, which fsdp.orthogonalize has
  /// made of its first state.
  bool isOrthogonal = false;
  /// The decay always shrinks the parameter, and is never part of the gradient.
  bool decouplesDecay = false;
  bool nesterov = false; ///< the default of --nesterov
  double lr = 0;
  NumberPair betas = {};
  double eps = 0;
  double weightDecay = 0;
  double alpha = 0;
  double momentum = 0;
};

/// Returns all optimizers that have a name, in the order of the help. The first
/// is the default.
llvm::ArrayRef<OptimizerInfo> allOptimizers();

/// Returns the row of a program that the user has written, which is not among
/// them.
const OptimizerInfo &userOptimizer();

using StateNames = llvm::SmallVector<llvm::StringRef>;

/// Returns the names of the states that the optimizer of these options keeps.
StateNames stateNames(const CompileOptions &options);

/// Returns true if the option of this name has an effect on the optimizer.
bool takes(const OptimizerInfo &info, llvm::StringRef option);

} // namespace fsdpc::fsdp
