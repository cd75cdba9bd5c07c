// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The modules that an op comes from, as the exporter wrote them, and the choice
// of its unit among them by the options.
#pragma once

#include "compiler/options/NamePatterns.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/Support/GlobPattern.h"

namespace fsdpc::passes {

/// One module around an op. The texts belong to the context of the op's
/// attributes and live as long as it.
struct ModuleScope {
  llvm::StringRef scope; ///< "h.0.attn"; empty for the root
  llvm::StringRef cls;   ///< "gpt.CausalSelfAttention"
};

/// Returns the op's modules, outermost first. The exporter's last entry is the
/// traced call itself and not a module; the second call of a module ("fc@1")
/// counts as the module.
llvm::SmallVector<ModuleScope> getModules(mlir::Operation *op);

/// Returns the name behind the last dot: "CausalSelfAttention".
llvm::StringRef lastComponent(llvm::StringRef name);

/// Chooses an op's unit among its modules.
class UnitPolicy {
public:
  /// Reads the options and the modules of all ops. Emits an error if a glob or
  /// an expression matches no module.
  static llvm::FailureOr<UnitPolicy> read(mlir::ModuleOp module,
                                          mlir::Block &body);

  /// Returns the module that is the op's unit, or nullopt if it belongs to the
  /// root.
  std::optional<ModuleScope> choose(mlir::Operation *op);

  /// Set if large parameters of the root become units of their own.
  bool separatesLarge = false;

private:
  /// Globs on class names, from --unit-class.
  std::vector<llvm::GlobPattern> classes;
  /// Expressions on scopes, from --unit-scope. Matching marks them as used,
  /// which is why `choose` is not const.
  fsdp::NamePatterns scopes;
  /// The scopes of repeated modules, if these are the units.
  llvm::StringSet<> siblings; ///< scopes
};

} // namespace fsdpc::passes
