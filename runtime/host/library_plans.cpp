// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes and prepares the library plans. The scratch memory that they need is at
// most what the memory plan counts, on every processor: where an implementation
// needs more, oneDNN's next one is taken.
#include "runtime/host/library_plans.h"

#include "runtime/abi/host_scratch.h"
#include "runtime/core/device.h"

#include <algorithm>

namespace fsdpc::runtime {

// The cache lives only as long as this call; the plans share ownership of its
// products.
Status LibraryPlans::make(const Manifest &manifest, int threads) {
  GemmCache cache(threads, isaOf(manifest.cpuFeatures));
  matmuls.resize(manifest.matmuls.size());
  convolutions.resize(manifest.convolutions.size());
  poolings.resize(manifest.poolings.size());
  // Indexed by the numbers that library calls name.
  attentions.resize(manifest.attentions.size());
  for (size_t i = 0; i < matmuls.size(); ++i) {
    FSDPC_TRY(matmuls[i].plan(manifest.matmuls[i], cache));
    scratchBytes = std::max(scratchBytes, matmuls[i].scratchBytes());
  }
  for (size_t i = 0; i < convolutions.size(); ++i) {
    FSDPC_TRY(convolutions[i].plan(manifest.convolutions[i], cache));
    scratchBytes = std::max(scratchBytes, convolutions[i].scratchBytes());
  }
  for (size_t i = 0; i < poolings.size(); ++i)
    FSDPC_TRY(poolings[i].plan(manifest.poolings[i]));
  for (size_t i = 0; i < attentions.size(); ++i) {
    FSDPC_TRY(attentions[i].plan(manifest.attentions[i], cache));
    scratchBytes = std::max(scratchBytes, attentions[i].scratchBytes());
  }
  scratchBytes = size_t(scratchPerThread(int64_t(scratchBytes)));
  avoidances = cache.avoidances();
  return {};
}

void LibraryPlans::prepare() {
  for (Matmul &matmul : matmuls)
    matmul.prepare();
  for (Convolution &convolution : convolutions)
    convolution.prepare();
  for (Attention &attention : attentions)
    attention.prepare();
}

int64_t scratchpadBytes(const Manifest &manifest, int, int threads) {
  return hostScratchBytes(manifest, threads);
}

} // namespace fsdpc::runtime
