// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The groups of --group (torch.optim's param_groups) and --layer-decay, matched
// against the parameters of a module: what updates each one, and at which rate.
#pragma once

#include "compiler/dialects/fsdp/Names.h"
#include "compiler/options/Options.h"

#include "llvm/ADT/DenseMap.h"

namespace fsdpc::fsdp {

/// A parameter belongs to the first group that matches its name or an alias.
/// Frozen parameters belong to none. Copies what it needs from the options; the
/// parameters stay in the module, which must outlive it.
class ParameterGroups {
public:
  struct Group {
    std::string pattern;
    std::vector<ParameterOp> members; ///< in the module's order
  };

  /// Matches the groups of the module's options. Fails with an error at the
  /// module if a group has no member: its expression matches no trainable
  /// parameter, or only those of groups before it.
  static llvm::FailureOr<ParameterGroups> of(mlir::ModuleOp module);

  /// Returns the groups in the order of their flags.
  llvm::ArrayRef<Group> groups() const { return list; }
  /// Returns the number of the parameter's group, or nullopt.
  std::optional<size_t> groupOf(ParameterOp parameter) const;
  /// Returns what a layout must have as its `group` to hold the parameter: the
  /// number, from 1, of the group whose optimizer and hyperparameters update
  /// it, or 0 for those of the options.
  size_t programOf(ParameterOp parameter) const;

private:
  std::vector<Group> list;
  std::vector<size_t> programs; ///< of each group; see programsOf
  llvm::DenseMap<mlir::Operation *, size_t> numbers;
};

/// Returns, for each parameter that is loaded, the factor that --layer-decay
/// puts on its learning rate: decay^(L + 1 - i) in layer i, as BEiT (Bao et
/// al., 2022) and timm have it. Layers 1 to L are the units of modules in order
/// of first use. Other parameters are in layer 0 before the first unit, in
/// layer L + 1 behind the last, and in that of the unit before them in between.
/// Fails with an error at the module if there is no unit of a module.
llvm::FailureOr<llvm::DenseMap<mlir::Operation *, double>>
layerFactors(mlir::ModuleOp module, mlir::Block &body, double decay);

} // namespace fsdpc::fsdp
