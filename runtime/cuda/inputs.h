// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The two input slots: pinned staging memory on the host, copied to the device
// on a stream of its own while the other slot is computed on.
#pragma once

#include "runtime/cuda/memory.h"

namespace fsdpc::runtime {

/// Used by the loop's thread alone. While the device computes on one slot, the
/// host fills the other; a slot is filled again only when its copy has been
/// sent and the compute stream has read it, which the events of a slot tell.
class CudaInputs {
public:
  /// Creates the stream and events. Both references must outlive this.
  CudaInputs(CudaContext &context, CudaMemory &memory);

  /// Pinned bytes that the inputs of a manifest take, for both slots.
  static int64_t pinnedBytes(const Manifest &manifest);

  /// These three implement Device::staging, awaitSlot and send.
  Result<void *> staging(int slot, void *memory, size_t bytes);
  void await(int slot);
  void send(int slot);
  /// Mark where the compute stream begins to read a slot, and where it is done.
  void beginUse(int slot);
  void endUse(int slot);

private:
  /// One input, or the random key, of a slot. Both memories belong to
  /// CudaMemory.
  struct Staged {
    void *device, *pinned;
    size_t bytes;
  };
  struct Slot {
    std::vector<Staged> staged;
    std::unique_ptr<OwnedEvent> sent, used;
  };

  CudaContext &context;
  CudaMemory &memory;
  std::array<Slot, 2> slots;
};

} // namespace fsdpc::runtime
