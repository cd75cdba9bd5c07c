// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A step of power-sgd that tests compare with the kernel of GPUs.
#pragma once

#include <cstdint>

namespace fsdpc::runtime {

/// Makes `count` vectors of `length` elements, one after the other,
/// orthonormal (Gram and Schmidt). One that depends on those before it becomes
/// zero.
void orthonormaliseFactor(float *vectors, int64_t count, int64_t length);

} // namespace fsdpc::runtime
