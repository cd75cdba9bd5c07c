// The kind of an op for outlining: the op's own answer
// (nn::FusibleOpInterface), corrected where the ops around it decide, which are
// operands with strides and sums over blocks of rows.
#pragma once

#include "compiler/analysis/kernels/RowSums.h"
#include "compiler/dialects/nn/NNDialect.h"

namespace fsdpc::passes {

using OpKind = nn::FusionKind;
using analysis::RowSums;
using analysis::rowSumsOf;
using nn::Domain;

OpKind kindOf(mlir::Operation *op);

Domain domainOf(mlir::Operation *op);

} // namespace fsdpc::passes
