// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Pooling and its gradients on the host, over planes (batch × channel). Plain
// loops instead of oneDNN, because the program defines its own workspace: the
// index of the first maximum within each window.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/host/thread_pool.h"
#include "runtime/support/status.h"

namespace fsdpc::runtime {

class Pooling {
public:
  /// Fails if the pooling cannot be run.
  Status plan(const PoolingPlan &plan);
  /// Computes all planes, cut among the threads, and returns when they are
  /// done. `source` and `destination` are dense tensors of the plan's type. For
  /// maxima the forward writes `workspace`, one index per output, and the
  /// gradient reads it; averages have none, and it may be null.
  void run(ThreadPool &pool, const void *source, void *destination,
           int32_t *workspace) const;

private:
  PoolingPlan pooling;
};

} // namespace fsdpc::runtime
