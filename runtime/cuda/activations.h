// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Moves activations between device memory and pinned host memory
// (--offload=activations). Copies have streams of their own, one for each
// direction of the link: a collective does not wait for a copy that the program
// begins before it on the same stream, nor a copy for a collective. So a stream
// of the program that copies is two streams of CUDA, and its events stand for
// both.
//
// Nothing but events orders a copy and a collective of one stream. verify-rt
// proves that they never touch the same memory without one, and elide-events
// keeps those that only the copies need (StreamClocks.h).
#pragma once

#include "runtime/cuda/sections.h"

#include <cstdint>

namespace fsdpc::runtime {

class CudaActivations {
public:
  /// Uses as many events of Sections as the program has, from `firstEvent` on.
  CudaActivations(CudaContext &context, Sections &sections, int firstEvent)
      : context(context), sections(sections), firstEvent(firstEvent) {}

  /// Takes pinned memory for all activations.
  void use(char *memory) { pinned = memory; }

  /// Enqueue the copies of one activation, from byte `place` of the pinned
  /// memory on.
  void offload(const void *memory, int64_t bytes, int64_t place);
  void fetch(void *memory, int64_t bytes, int64_t place);

  /// Record and wait for an event of the program on the streams of copies,
  /// where Sections does so on the program's own.
  void record(int stream, int event);
  void wait(int stream, int event);

private:
  CudaContext &context;
  Sections &sections;
  int firstEvent;
  char *pinned = nullptr;
};

} // namespace fsdpc::runtime
