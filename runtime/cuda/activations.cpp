// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The copies and events of offloaded activations. All of it is captured in
// graphs: the memory is pinned, and a section's copies join at its end.
#include "runtime/cuda/activations.h"

namespace fsdpc::runtime {

namespace {

// Returns the stream that copies for a stream of the program, or -1.
int copierOf(int stream) {
  return stream == FSDPC_STREAM_GATHER   ? offloadInStream
         : stream == FSDPC_STREAM_REDUCE ? offloadOutStream
                                         : -1;
}

} // namespace

void CudaActivations::offload(const void *memory, int64_t bytes,
                              int64_t place) {
  context.copy(pinned + place, memory, size_t(bytes), offloadOutStream);
}

void CudaActivations::fetch(void *memory, int64_t bytes, int64_t place) {
  context.copy(memory, pinned + place, size_t(bytes), offloadInStream);
}

void CudaActivations::record(int stream, int event) {
  if (int copier = copierOf(stream); copier >= 0)
    sections.record(copier, firstEvent + event);
}

// Copies that follow wait, too, and whatever follows waits for copies, too.
void CudaActivations::wait(int stream, int event) {
  sections.wait(stream, firstEvent + event);
  if (int copier = copierOf(stream); copier >= 0) {
    sections.wait(copier, event);
    sections.wait(copier, firstEvent + event);
  }
}

} // namespace fsdpc::runtime
