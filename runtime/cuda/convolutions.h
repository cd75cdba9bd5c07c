// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolutions on a GPU: cuDNN, or plain loops of the runtime if the library
// refuses a shape, so that every legal program runs.
#pragma once

#include "runtime/cuda/context.h"

namespace fsdpc::runtime {

class GpuConvolution {
public:
  explicit GpuConvolution(CudaContext &context) : context(context) {}
  GpuConvolution(GpuConvolution &&other);
  ~GpuConvolution();

  /// Prepares for a plan. Returns a description of how it runs, for the log.
  /// Fails if it cannot be run.
  Result<std::string> plan(const ConvolutionPlan &plan, bool deterministic);
  /// Enqueues the convolution on stream COMPUTE, with operands as in
  /// fsdpc_convolution.
  void run(const void *x, const void *w, void *y, void *workspace) const;

private:
  CudaContext &context;
  CudaConvolution library = nullptr; ///< null: plain loops
  /// Complete except for the operands, which each call brings.
  PlainConvolution plain;
  int64_t cells = 0; ///< elements of the result
};

} // namespace fsdpc::runtime
