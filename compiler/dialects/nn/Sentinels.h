// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The numbers by which masks hide keys where infinities are avoided. Exporters
// write the lowest f32, or -1e30 and below; exp() of any of them is 0.
#pragma once

namespace fsdpc::nn {

/// Finite numbers of this size and above stand for the largest one of their
/// type.
constexpr double kLeastSentinel = 1e30;

} // namespace fsdpc::nn
