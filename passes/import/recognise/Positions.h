// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conditions over row and column numbers, from which exporters compute masks.
#pragma once

#include "passes/import/recognise/Match.h"

namespace fsdpc::passes::recognise {

/// The keys of row t for which a condition holds: those up to t + `last`, or,
/// if `after`, those after it.
struct Band {
  int64_t last = 0;
  bool after = false;
};

/// Returns the band of a boolean tensor whose last two axes are rows and keys,
/// or nullopt if it is no comparison of numbers that are linear in an element's
/// position. The cost does not depend on the size of the tensor.
std::optional<Band> bandOf(mlir::Value condition);

} // namespace fsdpc::passes::recognise
