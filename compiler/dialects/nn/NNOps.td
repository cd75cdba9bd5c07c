// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All of the nn dialect, for tools that read one file.
include "compiler/dialects/nn/NNKernelPlan.td"
include "compiler/dialects/nn/NNLibrary.td"
