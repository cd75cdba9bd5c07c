// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The learning rate and weight decay of each member of a layout, from --group,
// --layer-decay, --no-decay and --weight-decay, and the group whose optimizer
// updates it.
#pragma once

#include "compiler/dialects/fsdp/Names.h"
#include "compiler/dialects/fsdp/ParameterGroups.h"

#include "llvm/ADT/DenseMap.h"

namespace fsdpc::passes {

class MemberRates {
public:
  /// Matches the expressions against the module's parameters, which know by now
  /// whether they train. Fails with an error at the module if one has no
  /// effect. `body` is that of @microbatch, with its loads.
  static llvm::FailureOr<MemberRates> of(mlir::ModuleOp module,
                                         mlir::Block &body);

  /// Returns the factor of the learning rate. A group's rate is kept as a
  /// ratio, so that --lr and --lr-schedule of the program act on all groups. 1:
  /// the rate of the run.
  double rateOf(fsdp::ParameterOp parameter) const;
  /// Returns the weight decay. One that the parameter's group names outweighs
  /// --no-decay.
  double decayOf(fsdp::ParameterOp parameter) const;
  /// Returns the `group` of the parameter's layout, or 0.
  size_t programOf(fsdp::ParameterOp parameter) const {
    return groups.programOf(parameter);
  }

private:
  fsdp::CompileOptions options;
  /// The options of the groups, in the order of --group.
  std::vector<fsdp::CompileOptions> ofGroups; ///< those of each group's members
  fsdp::ParameterGroups groups;
  /// Empty without --layer-decay; a parameter that is missing has factor 1.
  llvm::DenseMap<mlir::Operation *, double> layerFactors;
  llvm::DenseSet<mlir::Operation *> decayed; ///< without those of --no-decay
};

} // namespace fsdpc::passes
