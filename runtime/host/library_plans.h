// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every library plan of a manifest, prepared for the host. The plans are made
// when the program starts, so that a step makes no primitive and allocates
// nothing.
#pragma once

#include "runtime/host/attention.h"
#include "runtime/host/convolution.h"
#include "runtime/host/matmul.h"
#include "runtime/host/pooling.h"

#include <vector>

namespace fsdpc::runtime {

/// Library calls name a plan by its place in the lists. All threads of the rank
/// run the same plans, each with scratch memory of its own.
struct LibraryPlans {
  std::vector<Matmul> matmuls;
  std::vector<Convolution> convolutions;
  std::vector<Pooling> poolings;
  std::vector<Attention> attentions;
  size_t scratchBytes = 0; ///< largest need of a plan, per thread
  /// Products for which oneDNN's first choice needs more scratch than planned.
  int64_t avoidances = 0;

  /// Checks every plan and cuts it into pieces for the threads. The cuts do not
  /// change the bits of any result. Fails, with the plan's shape, if one cannot
  /// be run, as in a manifest of an edited dump.
  Status make(const Manifest &manifest, int threads);
  /// Builds the oneDNN primitives, which takes long; needed before running.
  void prepare();
};

} // namespace fsdpc::runtime
