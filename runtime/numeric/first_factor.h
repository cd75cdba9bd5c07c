// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The right factors with which --reduce-hook=power-sgd begins, and with which
// it replaces vectors that have become zero.
#pragma once

#include "runtime/numeric/init_values.h"

namespace fsdpc::runtime {

/// Equal on all ranks and in all runs, as torch's random_seed of 0.
constexpr uint64_t powerSeed = 0x506f776572534744; ///< "PowerSGD"

/// Writes elements [from, from + count) of the factor of a parameter.
inline void beginFactor(const std::string &parameter, int64_t from,
                        int64_t count, float *values) {
  applyInitRule({InitRule::normal, {0, 1}}, parameter, powerSeed, from, count,
                values);
}

} // namespace fsdpc::runtime
