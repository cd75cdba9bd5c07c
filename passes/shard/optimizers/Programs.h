// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The programs of the optimizers. Each file beside this one has those of a
// family, by the names of their rows in Optimizers.cpp.
#pragma once

#include "compiler/options/Optimizers.h"
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

  /// Builds the program. Returns the new parameter, rounded if there is a word,
  /// and the new states. States are zero before the first step; one that starts
  /// with another value is replaced by it where the step is 1. The arguments
  /// are of one element; `in` has one state per name. The gradient comes
  /// averaged over microbatches and with its norm clipped.
  Results build(Scalars s, Arguments in) const;

  /// The names of the sums over a whole parameter that the program takes. Most
  /// take none.
  llvm::ArrayRef<llvm::StringRef> sums() const { return sumNames; }
  /// Builds the program whose results are summed: an f64 for each of sums().
  /// Its arguments are those of `build` before the sums; it sees the same
  /// gradient.
  Results buildSums(Scalars s, Arguments in) const;

  /// Returns true if the program takes the average of the gradient's squares
  /// from factors instead of a state.
  bool isFactored() const { return options.optimizer.info->isFactored; }
  /// Returns true if the program takes updates of whole matrices from
  /// fsdp.orthogonalize.
  bool isOrthogonal() const { return options.optimizer.info->isOrthogonal; }
  /// The options of the program's group. Differ from those of the run where the
  /// --group names an optimizer or its numbers.
  const fsdp::CompileOptions &own() const { return options; }

private:
  /// Clips the gradient's elements and turns it round, as the options say. Also
  /// removes the state of --ema, which the optimizers do not know of.
  Arguments prepare(Scalars s, Arguments in) const;

  fsdp::CompileOptions options;
  fsdp::StateNames names;
  fsdp::StateNames sumNames;
  UserProgram user; ///< null if the optimizer is a known one
};

/// Returns the program of the options, then that of each --group. Groups whose
/// programs are the same (fsdp::programsOf) share one that is built once.
mlir::FailureOr<std::vector<OptimizerProgram>>
programsOf(const fsdp::CompileOptions &options, mlir::MLIRContext *context);

/// Builds a program in the region of its op. Takes `Arguments` by value, since
/// decay changes their gradient or parameter.
using BuildProgram = Results (*)(const fsdp::CompileOptions &, Scalars,
                                 Arguments);

/// The program of an optimizer that has a row in Optimizers.cpp.
struct Program {
  llvm::StringLiteral optimizer;
  BuildProgram build;
  /// Builds what is summed, for an optimizer with sums.
  BuildProgram buildSums = nullptr;
};

/// Returns the program of every optimizer, by the files that have them.
llvm::ArrayRef<llvm::ArrayRef<Program>> allPrograms();
llvm::ArrayRef<Program> adamPrograms();
llvm::ArrayRef<Program> adaptivePrograms();
llvm::ArrayRef<Program> sgdPrograms();
llvm::ArrayRef<Program> trustRatioPrograms();
llvm::ArrayRef<Program> factoredPrograms();
llvm::ArrayRef<Program> orthogonalPrograms();

} // namespace fsdpc::passes
