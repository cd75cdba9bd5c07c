// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names of the status codes, with cudart's own texts, and the detail of the
// last refusal of each thread.
#include "runtime/emulation/status.h"

#include "runtime/support/concat.h"

#include <utility>

namespace fsdpc::runtime::emulation::status {

namespace {

// The last refusal of this thread. Per thread, because ranks of a process call
// the table at the same time.
struct Refusal {
  CudaStatus status = cudaOk;
  std::string detail;
};

thread_local Refusal lastRefusal;

std::string nameOf(CudaStatus status) {
  switch (status) {
  case cudaOk:
    return "no error";
  case cudaInProgress:
    return "in progress";
  case invalidValue:
    return "invalid argument";
  case memoryAllocation:
    return "out of memory";
  case insufficientDriver:
    return "CUDA driver version is insufficient for CUDA runtime version";
  case invalidDevice:
    return "invalid device ordinal";
  case invalidHandle:
    return "invalid resource handle";
  case illegalState:
    return "the operation cannot be performed in the present state";
  case symbolNotFound:
    return "named symbol not found";
  case launchFailure:
    return "unspecified launch failure";
  case captureUnsupported:
    return "operation not permitted when stream is capturing";
  case captureInvalidated:
    return "operation failed due to a previous error during capture";
  case captureMerge:
    return "operation would result in a merge of separate capture sequences";
  case captureUnmatched:
    return "capture was not ended in the same stream as it began";
  case captureUnjoined:
    return "capturing stream has unjoined work";
  case captureIsolation:
    return "dependency created on uncaptured work in another stream";
  case capturedEvent:
    return "operation not permitted on an event last recorded in a capturing "
           "stream";
  case captureWrongThread:
    return "attempt to terminate a thread-local capture sequence from another "
           "thread";
  case libraryNotSupported:
    return "the library does not support this problem";
  case ncclSystemError:
    return "unhandled system error";
  case ncclInvalidArgument:
    return "invalid NCCL argument";
  case ncclInvalidUsage:
    return "invalid NCCL usage";
  case ncclRemoteError:
    return "remote process exited or there was a network error";
  default:
    return concat("unknown error ", status);
  }
}

} // namespace

CudaStatus refuse(CudaStatus status, const std::string &detail) {
  lastRefusal = {status, detail};
  return status;
}

std::string textOf(CudaStatus status) {
  std::string text = nameOf(status);
  // A code of another thread or of an older call must not get this detail.
  if (status == lastRefusal.status && !lastRefusal.detail.empty())
    text += ": " + lastRefusal.detail;
  return text;
}

} // namespace fsdpc::runtime::emulation::status
