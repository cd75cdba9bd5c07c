// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The features of the processors that a program's host kernels are compiled
// for, as --cpu names them: the x86-64 microarchitecture levels of the System V
// ABI. The planner needs them before there is code, since the scratch memory of
// library calls depends on them.
#pragma once

#include "compiler/options/Options.h"

#include <string>
#include <vector>

namespace fsdpc::fsdp {

/// Returns the features in LLVM's names. `native` never yields a model of
/// processor: it takes the highest level that this machine has in full, plus
/// bf16 rounding, the one feature beyond a level. Returns an empty list for
/// `native` on a machine that has not even level 3.
std::vector<std::string> featuresOf(Cpu cpu);

} // namespace fsdpc::fsdp
