// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The phases of a compile, and the passes that lead to each.
#pragma once

#include "passes/pipeline/Dump.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

#include <functional>
#include <memory>
#include <optional>

namespace fsdpc::pipeline {

/// The phases of a compile, in their order. A phase names the state that its
/// passes leave behind. `Executable` has no passes: it stands for code
/// generation.
enum class Phase {
  Import,
  Units,
  Grad,
  Shard,
  Kernels,
  Collectives,
  Schedule,
  Memory,
  Runtime,
  Executable
};

/// The name of a phase in --compile-to, and its inverse.
llvm::StringRef phaseName(Phase phase);
std::optional<Phase> parsePhase(llvm::StringRef name);
/// "import|units|…", for help and errors.
std::string phaseNames();

/// A pass of the pipeline. Names are unique, since a dump is resumed by name.
struct PipelineStep {
  Phase phase;
  /// The argument of the pass, and a part of the name of its dump.
  llvm::StringLiteral name;
  /// Makes a new instance with default options, for a single run.
  std::unique_ptr<mlir::Pass> (*create)();
};

/// All steps, in order. Pipeline.cpp says what is true after each phase.
llvm::ArrayRef<PipelineStep> pipelineSteps();

struct PipelineOptions {
  /// The last phase whose passes run.
  Phase last = Phase::Runtime;
  /// The folder that gets NN-NAME.mlir after each pass, or empty for no dumps.
  std::string dumpFolder;
  DumpForm dumpForm = DumpForm::Short;
  /// The file that gets the table of the schedule, or empty for none.
  std::string scheduleTable;
  /// The trace whose durations replace the costs of ops before the schedule is
  /// made, or empty for none.
  std::string profile;
  /// The module comes from this process, so nobody has edited it, and the
  /// verifiers behind it need not run again.
  bool unedited = false;
  /// Called before each pass.
  std::function<void(const PipelineStep &)> progress;
  /// Called once, when the phase `memory` is behind the module and the next one
  /// has not begun: what describes a plan reads the module there. A failure
  /// ends the run.
  std::function<llvm::LogicalResult()> planned;
};

/// Runs the passes after the one named by `fsdp.done`, which says how far the
/// module has come, up to the phase `last`. Emits errors as diagnostics of the
/// context.
llvm::LogicalResult runPipeline(mlir::ModuleOp module,
                                const PipelineOptions &options);

} // namespace fsdpc::pipeline
