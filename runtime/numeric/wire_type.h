// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The types in which values travel between ranks: those in which models
// compute. A header of its own, which the runtime's CUDA kernels include.
#pragma once

#include "runtime/abi/element_type.h"

namespace fsdpc::runtime {

using WireType = ElementType;

} // namespace fsdpc::runtime
