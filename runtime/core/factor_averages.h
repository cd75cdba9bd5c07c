// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The averages of rows and columns of a member of the rank's layouts, as the
// functions of factor_update.h take them.
#pragma once

#include "runtime/core/rank.h"
#include "runtime/numeric/factor_update.h"

namespace fsdpc::runtime {

inline FactorAverages averagesOf(const MemberFactors &member) {
  FactorAverages averages;
  averages.matrices = member.shape.matrices;
  averages.rows = member.shape.rows;
  averages.columns = member.shape.columns;
  averages.factored = member.shape.factored;
  averages.sumsElements = member.shape.sumsElements();
  averages.ofRows = member.rows;
  averages.ofColumns = member.columns;
  averages.first = member.first;
  averages.firstSum = member.firstSum;
  return averages;
}

} // namespace fsdpc::runtime
