// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The resources of the rt dialect. Memory of layouts and buffers is the fsdp
// dialect's.
#pragma once

#include "compiler/dialects/fsdp/Memory.h"

namespace fsdpc::rt {

/// The memory that pointers of the program reach. The arena is what plan-memory
/// has laid out; read-only memory is what only the runtime writes (inputs,
/// constants, the key of random numbers), so commands never race for it.
struct ArenaMemory : mlir::SideEffects::Resource::Base<ArenaMemory> {
  llvm::StringRef getName() final { return "arena"; }
};
struct ReadOnlyMemory : mlir::SideEffects::Resource::Base<ReadOnlyMemory> {
  llvm::StringRef getName() final { return "read-only memory"; }
};

/// The communication windows of a channel: what a rank puts there, others read.
/// Each channel has its own, since the streams `gather` and `reduce` run at the
/// same time.
struct GatherWindow : mlir::SideEffects::Resource::Base<GatherWindow> {
  llvm::StringRef getName() final { return "window of channel 'gather'"; }
};
struct ReduceWindow : mlir::SideEffects::Resource::Base<ReduceWindow> {
  llvm::StringRef getName() final { return "window of channel 'reduce'"; }
};
/// Memory into which the batch statistics of all ranks are gathered.
struct StatisticsMemory : mlir::SideEffects::Resource::Base<StatisticsMemory> {
  llvm::StringRef getName() final { return "gathered statistics"; }
};
/// Effects on events keep ops that order streams where they are. verify-rt does
/// not take them for memory that two streams share.
struct EventState : mlir::SideEffects::Resource::Base<EventState> {
  llvm::StringRef getName() final { return "events"; }
};

} // namespace fsdpc::rt
