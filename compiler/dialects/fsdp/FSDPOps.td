// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// All of the fsdp dialect, for tools that read one file.
include "compiler/dialects/fsdp/FSDPOffload.td"
include "compiler/dialects/fsdp/FSDPOptimizer.td"
