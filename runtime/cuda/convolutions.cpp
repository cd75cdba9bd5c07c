// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolutions by cuDNN or plain loops. The library is asked at start whether
// it takes a shape, since nothing else knows.
#include "runtime/cuda/convolutions.h"
#include "runtime/abi/cuda_scratch.h"
#include "runtime/abi/plan_shapes.h"
#include "runtime/numeric/reduce.h"

#include <utility>

namespace fsdpc::runtime {

// Written out because the library's plan has one owner: the moved-from object
// must not destroy it.
GpuConvolution::GpuConvolution(GpuConvolution &&other)
    : context(other.context), library(std::exchange(other.library, nullptr)),
      plain(other.plain), cells(other.cells) {}

GpuConvolution::~GpuConvolution() {
  if (library)
    context.api.destroyConvolution(library);
}

Result<std::string> GpuConvolution::plan(const ConvolutionPlan &p,
                                         bool deterministic) {
  if (p.dtype != "f32" && p.dtype != "bf16" && p.dtype != "f16")
    return inputError("convolution of type '" + p.dtype + "' is not supported");
  bool input = p.kind == "input", weight = p.kind == "weight";
  if (!input && !weight && p.kind != "forward")
    return inputError("unknown convolution kind '" + p.kind + "'");
  FSDPC_TRY(checkShape(p));
  // The plain kernel is described even if the library takes the plan: whether
  // it does is known only afterwards.
  plain.kind = input    ? ConvolutionKind::input
               : weight ? ConvolutionKind::weight
                        : ConvolutionKind::forward;
  plain.type = wireType(p.dtype);
  plain.batch = p.batch, plain.channels = p.channels;
  plain.filters = p.filters, plain.groups = p.groups;
  const int64_t sizes[2][3] = {{p.height, p.outHeight, p.kernelHeight},
                               {p.width, p.outWidth, p.kernelWidth}};
  for (int axis = 0; axis < 2; ++axis) {
    plain.in[axis] = sizes[axis][0];
    plain.out[axis] = sizes[axis][1];
    plain.kernel[axis] = sizes[axis][2];
    plain.strides[axis] = p.strides[size_t(axis)];
    plain.pads[axis] = p.padsBegin[size_t(axis)];
    plain.dilations[axis] = p.dilations[size_t(axis)];
  }
  // One thread computes one element of the result, so their number is the size
  // of dw, dx or y.
  cells = weight  ? p.filters * (p.channels / p.groups) * p.kernelHeight *
                        p.kernelWidth
          : input ? p.batch * p.channels * p.height * p.width
                  : p.batch * p.filters * p.outHeight * p.outWidth;
  // The cap is the workspace that the memory plan holds for all library calls;
  // they run on one stream and share it.
  CudaChoice chosen;
  CudaStatus status = context.api.planConvolution(
      p, size_t(libraryWorkspaceBytes), deterministic, library, chosen);
  if (status != cudaOk)
    library = nullptr;
  return library ? chosen.algorithm
                 : "plain loops: " + refusal(context, status, chosen);
}

void GpuConvolution::run(const void *x, const void *w, void *y,
                         void *workspace) const {
  if (library) {
    context.check(context.api.convolution(
        library, x, w, y, workspace, context.streams[FSDPC_STREAM_COMPUTE]));
    return;
  }
  PlainConvolution own = plain;
  own.x = x, own.w = w, own.y = y;
  context.launch(own, cells, FSDPC_STREAM_COMPUTE);
}

} // namespace fsdpc::runtime
