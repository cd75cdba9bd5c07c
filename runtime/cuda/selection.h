// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses the largest elements on a GPU, for --reduce-hook=top-k
// (kernels/selection.h). One object serves all layouts, one after the other.
#pragma once

#include "runtime/cuda/context.h"

namespace fsdpc::runtime {

class Selection {
public:
  explicit Selection(CudaContext &context) : context(context) {}

  /// Makes it work on device memory of TopK::deviceBytes for so many elements.
  void use(void *memory, int64_t mostElements);
  /// Enqueues on stream REDUCE what takeLargest of runtime/numeric/top_k.h
  /// does.
  void take(float *values, int64_t elements, int64_t count,
            ChosenElement *chosen);

private:
  CudaContext &context;
  /// In device memory.
  Threshold *threshold = nullptr;
  int64_t *digits = nullptr;
  SegmentCount *segments = nullptr;
};

} // namespace fsdpc::runtime
