// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans one model with many settings. Imports and the phases that settings
// share run once; every other phase is that of a compile with the same flags,
// so a plan is what the compile will print.
#pragma once

#include "compiler/options/Options.h"
#include "tools/plan/Plan.h"

#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <map>

namespace fsdpc::plan {

/// Imports the model with other options than before.
using Importer =
    std::function<mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>(
        const fsdp::CompileOptions &)>;

/// Flags without their dashes, and their values.
using Settings = std::vector<std::pair<std::string, std::string>>;

/// Returns "--strategy=zero2 --prefetch=none".
std::string flagsOf(const Settings &settings);

/// A plan by its settings.
struct Point {
  Settings settings; ///< beyond the flags that all points share
  int64_t accumulate = 1;
  Estimate estimate;
  double opsUs = 0;  ///< of a microbatch
  std::string fault; ///< why there is no such plan; empty if there is one

  bool isValid() const { return fault.empty(); }
};

/// Owns the modules that it keeps. Diagnostics of a plan that cannot be made do
/// not reach the user: they become the fault of its point, since a search goes
/// on with other settings.
class Planner {
public:
  /// `imported` is of the phase `import`, with the options `shared`. Plans of
  /// which a rank holds more than `cap` bytes besides the arena end early (0:
  /// no cap).
  Planner(fsdp::CompileOptions shared, int64_t cap,
          mlir::OwningOpRef<mlir::ModuleOp> imported, Importer importAgain)
      : shared(std::move(shared)), cap(cap),
        importAgain(std::move(importAgain)) {
    units[""] = std::move(imported);
  }

  /// Plans the model for --plan-ranks with the settings. Takes as long as the
  /// phases from the first one that the settings change, up to `memory`.
  Point plan(Settings settings, int64_t accumulate);
  mlir::MLIRContext *context() { return units.begin()->second->getContext(); }
  /// Returns "" if the settings go together, else what a compile says.
  std::string check(const Settings &settings) const;

  /// Returns the module of a plan, past the phase `memory`. Emits errors.
  mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
  moduleOf(const Settings &settings);

  /// The plans that were made.
  int planned = 0;

private:
  mlir::LogicalResult run(Point &point);
  mlir::FailureOr<mlir::ModuleOp> importedWith(const Settings &settings,
                                               const fsdp::CompileOptions &);

  fsdp::CompileOptions shared;
  int64_t cap;
  Importer importAgain;
  /// Modules of the phase `units`, by the settings that an import depends on.
  std::map<std::string, mlir::OwningOpRef<mlir::ModuleOp>> units;
  /// The last module of the phase `collectives`, and its settings.
  mlir::OwningOpRef<mlir::ModuleOp> collectives;
  std::optional<std::string> collectivesOf;
};

} // namespace fsdpc::plan
