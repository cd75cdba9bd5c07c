// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Status codes of the emulation: cudart's own numbers, and those of NCCL and
// the libraries with offsets. Tests name them, to see that a call is refused
// for the reason for which the real library refuses it.
#pragma once

#include "runtime/cuda/api.h"

#include <string>

namespace fsdpc::runtime::emulation::status {

constexpr CudaStatus invalidValue = 1;
constexpr CudaStatus memoryAllocation = 2;
constexpr CudaStatus insufficientDriver = 35;
constexpr CudaStatus invalidDevice = 101;
constexpr CudaStatus invalidHandle = 400;
constexpr CudaStatus illegalState = 401;
constexpr CudaStatus symbolNotFound = 500;
constexpr CudaStatus launchFailure = 719;
constexpr CudaStatus captureUnsupported = 900;
constexpr CudaStatus captureInvalidated = 901;
constexpr CudaStatus captureMerge = 902;
constexpr CudaStatus captureUnmatched = 903;
constexpr CudaStatus captureUnjoined = 904;
constexpr CudaStatus captureIsolation = 905;
constexpr CudaStatus capturedEvent = 907;
constexpr CudaStatus captureWrongThread = 908;

/// Errors of cuBLAS, from 1000. The offsets differ from those of real_api.h; no
/// program links both tables.
constexpr CudaStatus libraryNotSupported = 1015;

/// Errors of NCCL, from 3000.
constexpr CudaStatus ncclSystemError = 3002;
constexpr CudaStatus ncclInvalidArgument = 3004;
constexpr CudaStatus ncclInvalidUsage = 3005;
constexpr CudaStatus ncclRemoteError = 3006;

/// Returns `status`, and remembers `detail` for textOf on this thread, until
/// the thread's next refusal.
CudaStatus refuse(CudaStatus status, const std::string &detail);
/// Returns the text of a code in one line, with the detail if it belongs to the
/// last refusal of this thread.
std::string textOf(CudaStatus status);

} // namespace fsdpc::runtime::emulation::status
