// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions that cudnn_frontend's headers name and fsdpc never reaches. A call
// of one breaks a rule.
#include "tests/runtime/cuda/vendor/record.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>

namespace {

template <typename Status> Status unexpected(const char *function) {
  fsdpc::vendor::require(false, function, "fsdpc does not use it");
  return Status(1);
}

} // namespace

extern "C" {

cudaError_t cudaEventCreate(cudaEvent_t *) {
  return unexpected<cudaError_t>(__func__);
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return unexpected<cudaError_t>(__func__);
}
cudaError_t cudaEventElapsedTime(float *, cudaEvent_t, cudaEvent_t) {
  return unexpected<cudaError_t>(__func__);
}
cudaError_t cudaDeviceSynchronize() {
  return unexpected<cudaError_t>(__func__);
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *) {
  return unexpected<cudnnStatus_t>(__func__);
}
cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t,
                                         cudnnDataType_t, cudnnTensorFormat_t,
                                         int, const int *) {
  return unexpected<cudnnStatus_t>(__func__);
}
cudnnStatus_t cudnnReorderFilterAndBias(const cudnnHandle_t,
                                        const cudnnFilterDescriptor_t,
                                        cudnnReorderType_t, const void *,
                                        void *, int, const void *, void *) {
  return unexpected<cudnnStatus_t>(__func__);
}
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t) {
  return unexpected<cudnnStatus_t>(__func__);
}

} // extern "C"
