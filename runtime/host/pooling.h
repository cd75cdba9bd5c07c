// Pooling and its gradients on the host, over planes (batch × channel). Plain
// loops instead of oneDNN, because the program defines its own workspace: the
// index of the first maximum within each window.
#pragma once

#include "runtime/host/thread_pool.h"
#include "shared/manifest.h"
#include "shared/status.h"

namespace fsdpc::runtime {

class Pooling {
public:
  // Fails if the pooling cannot be run.
  Status plan(const PoolingPlan &plan);
  void run(ThreadPool &pool, const void *source, void *destination,
           int32_t *workspace) const;

private:
  PoolingPlan pooling;
};

} // namespace fsdpc::runtime
