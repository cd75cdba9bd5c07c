// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the constants of a graph that stay as they are in the file: the codes
// and scales of quantised weights.
#pragma once

#include "onnx-ml.pb.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc::frontend {

class HandlerTable;

/// Returns the names of the initializers that become `stored` parameters and
/// are not folded: narrow ones of more than kFoldedAnyway bytes, and what
/// values are computed from together with these. The table says what ops do
/// with codes (CodeUse); `isParameter` says which initializers are parameters,
/// which are no constants.
llvm::StringSet<>
storedConstants(const onnx::GraphProto &graph, const HandlerTable &handlers,
                llvm::function_ref<bool(llvm::StringRef)> isParameter);

} // namespace fsdpc::frontend
