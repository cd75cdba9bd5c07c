// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Convolutions in plain loops: the windows as a matrix (im2col), and a product.
#pragma once

#include "runtime/abi/manifest.h"

namespace fsdpc::runtime::emulation {

/// Computes a convolution or a gradient of one, with operands as in
/// fsdpc_convolution. Sums are f32.
void convolve(const ConvolutionPlan &plan, const void *x, const void *w,
              void *y);

} // namespace fsdpc::runtime::emulation
