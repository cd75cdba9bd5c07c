// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rt dialect: one op per function of the runtime's C ABI and nothing else. It is
// the only place that states a call. The functions of the generated header have the
// order of these files.
include "compiler/dialects/rt/RTSymbols.td"
include "compiler/dialects/rt/RTCompute.td"
include "compiler/dialects/rt/RTAttention.td"
include "compiler/dialects/rt/RTReports.td"
include "compiler/dialects/rt/RTCollectives.td"
include "compiler/dialects/rt/RTOffload.td"
include "compiler/dialects/rt/RTUpdate.td"
