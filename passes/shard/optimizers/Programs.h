// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The programs of the optimizers. Each file beside this one has a family.
#pragma once

#include "compiler/options/Options.h"
#include "passes/shard/optimizers/Scalars.h"
#include "passes/shard/optimizers/UserProgram.h"

#include <vector>

namespace fsdpc::passes {

/// The program of an optimizer. With --ema it also keeps the average of the
/// parameter, as its last state.
class OptimizerProgram {
public:
  /// Emits an error if the program is the user's own and is not valid, or has
  /// more states than a layout can keep.
  static mlir::FailureOr<OptimizerProgram>
  of(const fsdp::CompileOptions &options, mlir::MLIRContext *context);

  /// The names of the f32 states of an element; torch.optim's, or the user's.
  llvm::ArrayRef<llvm::StringRef> states() const { return names; }

  /// Builds the program. Returns the new parameter, rounded if there is a
  /// word, and the new states. States
  /// are zero before the first step; one that starts with another value is
  /// replaced by it where the step is 1. The arguments are of one element; `in`
  /// has one state per name. The gradient comes averaged over microbatches and
  /// with its norm clipped.
  Results build(Scalars s, Arguments in) const;

  /// The names of the sums over a whole parameter that the program takes. Most
  /// take none.
  llvm::ArrayRef<llvm::StringRef> sums() const;
  /// Builds the program whose results are summed: an f64 for each of sums().
  /// Its arguments are those of `build` before the sums; it sees the same
  /// gradient.
  Results buildSums(Scalars s, Arguments in) const;

  /// Returns true if the program takes the average of the gradient's squares
  /// from factors instead of a state.
  bool isFactored() const;
  /// Returns true if the program takes updates of whole matrices from
  /// fsdp.orthogonalize.
  bool isOrthogonal() const;
  /// The options of the program's group. Differ from those of the run where the
  /// --group names an optimizer or its numbers.
  const fsdp::CompileOptions &own() const { return options; }

private:
  /// Clips the gradient's elements and turns it round, as the options say. Also
  /// removes the state of --ema, which the optimizers do not know of.
  Arguments prepare(Scalars s, Arguments in) const;

  fsdp::CompileOptions options;
  StateNames names;
  UserProgram user; ///< null if the optimizer is a known one
};

/// Returns the program of the options, then that of each --group. Groups whose
/// programs are the same (fsdp::programsOf) share one that is built once.
mlir::FailureOr<std::vector<OptimizerProgram>>
programsOf(const fsdp::CompileOptions &options, mlir::MLIRContext *context);

/// Programs.cpp lists these by optimizer. They take `in` by value, since decay
/// changes their gradient or parameter.
Results buildAdam(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildAdamax(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildNAdam(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildRAdam(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildAdadelta(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildAdagrad(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildRMSprop(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildSGD(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildASGD(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildRprop(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildLion(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildLAMB(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildLARS(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildAdafactor(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildMuon(const fsdp::CompileOptions &, Scalars, Arguments);

/// The programs whose results are summed.
Results buildLAMBSums(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildLARSSums(const fsdp::CompileOptions &, Scalars, Arguments);
Results buildAdafactorSums(const fsdp::CompileOptions &, Scalars, Arguments);

} // namespace fsdpc::passes
