// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How far the log-sum-exp of a row of attention scores may be from 0 before its
// rounding to f32 shows in weights that are recomputed from it.
#pragma once

namespace fsdpc {

/// Within it the rounding changes a weight by 2^-19 of itself at most. Beyond
/// it a backward kernel makes the weights of the row add up to 1: where finite
/// numbers of a mask hide all keys of a row, nothing is left of the logarithm.
constexpr float attentionExactLse = 64;

} // namespace fsdpc
