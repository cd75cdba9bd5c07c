// Makes and prepares the library plans. The memory table makes them too, for
// one thread, to learn their scratch memory without building primitives.
#include "runtime/host/library_plans.h"

#include "runtime/core/device.h"

#include <algorithm>
#include <omp.h>

namespace fsdpc::runtime {

namespace {

// oneDNN chooses a primitive's blocking by the number of OpenMP threads of the
// thread that creates it. One thread gives the same blocking, and so the same
// bits, for every --threads.
class SingleThreadedOpenMp {
public:
  SingleThreadedOpenMp() : before(omp_get_max_threads()) {
    omp_set_num_threads(1);
  }
  ~SingleThreadedOpenMp() { omp_set_num_threads(before); }

private:
  int before;
};

} // namespace

// The cache lives only as long as this call; the plans share ownership of its
// products.
Status LibraryPlans::make(const Manifest &manifest, int threads) {
  SingleThreadedOpenMp single;
  GemmCache cache(threads);
  matmuls.resize(manifest.matmuls.size());
  convolutions.resize(manifest.convolutions.size());
  poolings.resize(manifest.poolings.size());
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
  // Whole pages per thread, so that no two threads share a cache line.
  scratchBytes = (scratchBytes + 4095) / 4096 * 4096;
  return {};
}

void LibraryPlans::prepare() {
  SingleThreadedOpenMp single;
  for (Matmul &matmul : matmuls)
    matmul.prepare();
  for (Convolution &convolution : convolutions)
    convolution.prepare();
  for (Attention &attention : attentions)
    attention.prepare();
}

// One thread is enough: a plan's scratch per thread does not depend on their
// number.
int64_t scratchpadBytes(const Manifest &manifest, int, int threads) {
  LibraryPlans plans;
  // makeDevice reports a plan that cannot be made.
  if (!plans.make(manifest, 1))
    return 0;
  return int64_t(plans.scratchBytes) * threads;
}

} // namespace fsdpc::runtime
