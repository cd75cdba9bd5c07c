// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The matrices of orthogonal optimizers on the ranks: who orthogonalises which,
// what travels to the owners and back, and this rank's part of the updates.
// Host and GPUs share it.
#pragma once

#include "runtime/core/rank.h"
#include "runtime/numeric/momentum_step.h"

#include <cstdint>
#include <vector>

namespace fsdpc::runtime {

/// Returns the rank that orthogonalises each member of the layout: its owner if
/// it has one, else the next largest member goes to the rank that has the least
/// to do. It depends on the members' shapes and the number of ranks only.
std::vector<int> matrixOwners(const Layout &layout,
                              const LayoutBuffers &buffers, int ranks);

/// Returns the elements of the members in front of one, or of all.
int64_t elementsBefore(const Layout &layout, size_t member);

/// The messages of one member.
struct MatrixMessages {
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
};

/// Returns the messages between a member's owner and the other ranks, to it or
/// back. `elements` are the member's. Every rank lists them in the order of
/// ranks, and there is at most one each way between two of them.
MatrixMessages matrixMessages(const Layout &layout, const LayoutCut &cut,
                              size_t member, int owner, int rank, int ranks,
                              bool toOwner, float *elements);

/// X becomes a·X + (b·A + c·A²)·X with A = X·Xᵀ, `steps` times.
struct MatrixSteps {
  double a = 0, b = 0, c = 0, eps = 0;
  int32_t steps = 0;
  bool bf16 = false; ///< rounds X and every product
};

/// torch's adjust_lr_fn: "match_rms_adamw", or "original".
double matrixFactor(const Member &member, bool matchRms);

MomentumStep momentumStep(double momentum, double clipValue, bool nesterov,
                          bool maximize);

} // namespace fsdpc::runtime
