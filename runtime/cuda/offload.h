// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a device reaches what is offloaded of layouts. It lies in pinned host
// memory and comes piece by piece into two slots of device memory, where the
// kernels of the update and of the norm find it. While one slot is computed on,
// a stream fills the other, and another stream writes back what was computed
// before, so that both directions of the link are in use.
//
// Gathers and reductions copy parameters and gradients on their own streams
// (device_collectives.cpp).
#pragma once

#include "runtime/core/rank.h"
#include "runtime/cuda/sections.h"

#include <span>
#include <vector>

namespace fsdpc::runtime {

/// An operand of a kernel that works on pieces of a layout.
struct PieceOperand {
  /// Where the layout's part begins, pinned. `bring` makes it where the part
  /// would begin in device memory, so that kernels count elements from there.
  void **address = nullptr;
  int64_t width = 0;      ///< bytes per element
  bool isChanged = false; ///< by the kernel
};

class CudaOffload {
public:
  /// Events of Sections that it uses, from `firstEvent` on.
  static constexpr int eventCount = 6;
  CudaOffload(CudaContext &context, Sections &sections, int firstEvent)
      : context(context), sections(sections), firstEvent(firstEvent) {}

  /// Takes the slots from the rank's memory, which has been allocated.
  void prepare(const fsdpc_rank &rank);

  /// Brings elements [begin, begin + count) of the operands to a slot, one
  /// behind the other. Kernels that are enqueued on stream COMPUTE until
  /// `takeBack` find them. The copies wait for earlier sections only; verify-rt
  /// refuses a section that brings what it has written.
  void bring(std::span<const PieceOperand> operands, int64_t begin,
             int64_t count, size_t slot);
  /// The same for those of a layout's optimizer or sums (optimizerOperands,
  /// memberSumOperands) that are offloaded and not null. Sums change none.
  void bring(const fsdpc_rank &rank, int32_t layout,
             OptimizerOperands &operands, bool areChanged, int64_t begin,
             int64_t count, size_t slot);
  /// Enqueues the copies of what these kernels have changed.
  void takeBack();
  /// Makes stream COMPUTE wait for all copies back, so that events of the
  /// program that follow stand for them, too.
  void settle();
  /// Slots 0 and 1, whose use in turn keeps both streams busy.
  template <typename T> T *slotMemory(size_t slot) const {
    return reinterpret_cast<T *>(memory + int64_t(slot) * slotBytes);
  }

private:
  /// Recorded for each slot: it has been filled, its kernels have run, and what
  /// they changed has been copied back.
  enum Event { filled, used, emptied };
  int eventOf(Event event, size_t slot) const {
    return firstEvent + int(event) * 2 + int(slot);
  }

  struct Copy {
    void *pinned, *device;
    size_t bytes;
  };

  CudaContext &context;
  Sections &sections;
  int firstEvent;
  char *memory = nullptr;
  int64_t slotBytes = 0;
  size_t slot = 0;         ///< of the piece at hand
  std::vector<Copy> backs; ///< of that piece
  /// The operands of one call; kept, so that a step allocates nothing.
  std::vector<PieceOperand> ofLayout;
};

} // namespace fsdpc::runtime
