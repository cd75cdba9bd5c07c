// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The resources of FSDPMemory.td: what an op's effects are on, where no operand
// says it.
#pragma once

#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace fsdpc::fsdp {

/// The rank's parts of the parameters. Like the next three, it is divided
/// by layout (symbolEffectsOf).
struct ParameterMemory : mlir::SideEffects::Resource::Base<ParameterMemory> {
  llvm::StringRef getName() final { return "parameters"; }
};
/// The accumulators into which the microbatches of a step add.
struct GradientMemory : mlir::SideEffects::Resource::Base<GradientMemory> {
  llvm::StringRef getName() final { return "gradients"; }
};
/// The secondary shards of layouts, which gathers write and read.
struct SecondaryMemory : mlir::SideEffects::Resource::Base<SecondaryMemory> {
  llvm::StringRef getName() final { return "secondary shards"; }
};
/// The rank's parts of the optimizer's states, by layout like the gradients.
struct OptimizerMemory : mlir::SideEffects::Resource::Base<OptimizerMemory> {
  llvm::StringRef getName() final { return "optimizer state"; }
};
/// The model's buffers, such as running statistics.
struct BufferMemory : mlir::SideEffects::Resource::Base<BufferMemory> {
  llvm::StringRef getName() final { return "buffers"; }
};
/// The file that holds activations between forward and backward.
struct ActivationFile : mlir::SideEffects::Resource::Base<ActivationFile> {
  llvm::StringRef getName() final { return "offloaded activations"; }
};
/// No memory: fsdp.enter and fsdp.exit write it, which keeps them in order.
struct SegmentBounds : mlir::SideEffects::Resource::Base<SegmentBounds> {
  llvm::StringRef getName() final { return "segment bounds"; }
};
/// The loss and the norm that a step reports.
struct StepReport : mlir::SideEffects::Resource::Base<StepReport> {
  llvm::StringRef getName() final { return "report of the step"; }
};
/// Stands for the data that collectives send if they touch no layout's memory.
/// The effect keeps these collectives in the same order on every rank.
struct OtherRanks : mlir::SideEffects::Resource::Base<OtherRanks> {
  llvm::StringRef getName() final { return "other ranks"; }
};

} // namespace fsdpc::fsdp
