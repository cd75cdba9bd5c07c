// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention in plain loops, one head at a time with all of its scores: a
// reference that favours clarity over memory.
#pragma once

#include "runtime/abi/manifest.h"

namespace fsdpc::runtime::emulation {

/// Computes attention or its gradient. Operands are in the order of
/// fsdpc_attention or fsdpc_attention_grad. A row that sees no key gets zeroes,
/// and minus infinity as its log-sum-exp.
void attend(const AttentionPlan &plan, const void *const *operands);

} // namespace fsdpc::runtime::emulation
