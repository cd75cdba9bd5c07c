// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The names of a parameter, for the flags that choose parameters by expressions
// (compiler/options/NamePatterns.h).
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/options/NamePatterns.h"

namespace fsdpc::fsdp {

/// Returns a parameter's name and its aliases.
llvm::SmallVector<llvm::StringRef> namesOf(ParameterOp parameter);

/// Returns true if any expression matches the parameter's name or an alias;
/// marks all that match as used.
bool matches(NamePatterns &patterns, ParameterOp parameter);

} // namespace fsdpc::fsdp
