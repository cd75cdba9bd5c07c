// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All attributes of the nn dialect.
#ifndef FSDPC_NN_ATTRIBUTES
#define FSDPC_NN_ATTRIBUTES

include "compiler/dialects/nn/NNKernelPlan.td"
include "compiler/dialects/nn/NNModules.td"

#endif
