// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The types in which values travel between ranks. A header of its own, which
// the runtime's CUDA kernels include: nvcc compiles them in an older C++.
#pragma once

namespace fsdpc::runtime {

enum class WireType { f32, bf16, f16 };

} // namespace fsdpc::runtime
