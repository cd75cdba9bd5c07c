// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the updates of running statistics, and tells whose statistics they
// take.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/options/Options.h"

namespace fsdpc::fsdp {

/// Returns the update of running statistics that takes `statistic`, perhaps
/// times a number (the unbiased variance) and with that of another call of the
/// module added, or null.
UpdateStatisticsOp updateOf(mlir::Value statistic);

/// Returns the op's mode as `--buffers` names it. The op has been verified.
BufferMode modeOf(UpdateStatisticsOp update);

} // namespace fsdpc::fsdp
