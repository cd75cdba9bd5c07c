// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows locations to nodes, and values to parameters.
#include "compiler/dialects/fsdp/Provenance.h"

using namespace mlir;

namespace fsdpc {

// Op locations nest as the importer made them: a node's name around a place in
// a file. A fused location has the name of its first part.
std::string fsdp::nodeOf(Location location) {
  if (auto fused = dyn_cast<FusedLoc>(location))
    return fused.getLocations().empty() ? ""
                                        : nodeOf(fused.getLocations().front());
  if (auto name = dyn_cast<NameLoc>(location))
    return name.getName().str();
  return "";
}

// Walks all producers, once each.
bool fsdp::dependsOnLoad(Value value, size_t mostOps) {
  SmallVector<Value> stack = {value};
  llvm::SmallPtrSet<Operation *, 16> seen;
  while (!stack.empty() && seen.size() < mostOps) {
    Operation *op = stack.pop_back_val().getDefiningOp();
    if (!op || !seen.insert(op).second)
      continue;
    if (isa<LoadOp>(op))
      return true;
    llvm::append_range(stack, op->getOperands());
  }
  return false;
}

} // namespace fsdpc
