// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The real side of the table: each function forwards to cudart, cuBLASLt, cuDNN
// or NCCL. There is one source file per library, and only these files include
// the libraries' headers, so the rest builds without them.
#pragma once

#include "runtime/cuda/api.h"

namespace fsdpc::runtime {

/// The first code of each library in CudaStatus. Those of cudart are
/// unchanged.
constexpr CudaStatus cublasCodes = 20000, cudnnCodes = 30000,
                     cudnnGraphCodes = 40000, ncclCodes = 50000;

/// Explain a code in one line. `status` is the library's own, without the
/// offset.
std::string describeCublas(int status);
std::string describeCudnn(int status);
std::string describeCudnnGraph(int code);
std::string describeNccl(int status);

/// Has no members: the loaded program and the handles of the libraries are
/// static in the source files, since all ranks of a process share them.
class RealCudaApi : public CudaApi {
public:
  std::string label() const override { return ""; }
  std::string errorText(CudaStatus status) override;

  // The calls of cudart are in real_device.cpp, of cuBLASLt in real_gemm.cpp,
  // of cuDNN in real_dnn.cpp and of NCCL in real_nccl.cpp.
#include "runtime/cuda/api_calls.inc"
};

} // namespace fsdpc::runtime
