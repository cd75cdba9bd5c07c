// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bytes of the arena that one stream takes over from another.
#pragma once

#include "compiler/analysis/Slots.h"

#include <string>
#include <vector>

namespace fsdpc::passes {

/// Returns one line per slot and stream that had some of its bytes before, in
/// program order of the slots that take over: "[0, 17408) compute to gather:
/// all_gather_start @h.1.flat". The offsets are bytes of the arena, those of
/// the whole slot. `packing` has one offset per slot.
std::vector<std::string>
reusedAcrossStreams(llvm::ArrayRef<analysis::Slot> slots,
                    const schedule::Packing &packing);

} // namespace fsdpc::passes
