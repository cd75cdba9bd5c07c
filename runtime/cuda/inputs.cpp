// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The input slots. Two events per slot order the work: `sent`, after which the
// compute stream may read the slot and the host may refill its staging memory,
// and `used`, after which the copy stream may overwrite the slot.
#include "runtime/cuda/inputs.h"
#include "runtime/abi/memory_plan.h"

namespace fsdpc::runtime {

CudaInputs::CudaInputs(CudaContext &context, CudaMemory &memory)
    : context(context), memory(memory) {
  for (Slot &slot : slots) {
    slot.sent = std::make_unique<OwnedEvent>(context);
    slot.used = std::make_unique<OwnedEvent>(context);
  }
}

// An upper bound: each input may lose up to one alignment block in the arena.
int64_t CudaInputs::pinnedBytes(const Manifest &manifest) {
  constexpr int64_t block = 4096; // alignment; one more for random keys
  int64_t bytes = block;
  for (const Input &input : manifest.inputs)
    bytes += inputBytes(input) + block;
  return 2 * bytes;
}

// Asked twice for the same memory, it returns the same staging.
Result<void *> CudaInputs::staging(int index, void *device, size_t bytes) {
  Slot &slot = slots[size_t(index)];
  for (const Staged &staged : slot.staged)
    if (staged.device == device)
      return staged.pinned;
  void *pinned = memory.takePinned(int64_t(bytes));
  if (!pinned)
    return runError("out of pinned memory for the inputs");
  slot.staged.push_back({device, pinned, bytes});
  return pinned;
}

// Waits for the copy out of the staging memory, not for the step that reads the
// slot, so the host fills a slot while the other one is computed on.
void CudaInputs::await(int slot) { slots[size_t(slot)].sent->await(); }

// The copy waits for the compute stream to be done with the slot, not for the
// host.
void CudaInputs::send(int index) {
  Slot &slot = slots[size_t(index)];
  slot.used->wait(copyStream);
  for (const Staged &staged : slot.staged)
    context.copy(staged.device, staged.pinned, staged.bytes, copyStream);
  slot.sent->record(copyStream);
}

void CudaInputs::beginUse(int slot) {
  slots[size_t(slot)].sent->wait(FSDPC_STREAM_COMPUTE);
}

void CudaInputs::endUse(int slot) {
  slots[size_t(slot)].used->record(FSDPC_STREAM_COMPUTE);
}

} // namespace fsdpc::runtime
