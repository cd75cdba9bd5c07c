// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kind of an op for outlining: the op's own answer
// (nn::FusibleOpInterface), corrected where the ops around it decide, which are
// operands with strides and sums over blocks of rows.
#pragma once

#include "compiler/analysis/kernels/RowSums.h"
#include "compiler/dialects/nn/OpInterfaces.h"

namespace fsdpc::passes {

using OpKind = nn::FusionKind;
using analysis::RowSums;
using analysis::rowSumsOf;
using nn::Domain;

/// Returns how an op takes part in grouping; Boundary for all ops that stay
/// outside kernels.
OpKind kindOf(mlir::Operation *op);

/// Returns the shape that the op iterates over, and the axes that it reduces.
/// The op must have a result.
Domain domainOf(mlir::Operation *op);

} // namespace fsdpc::passes
