// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Classifies ops for outlining, and finds the domain of each.
#include "passes/kernels/OpKinds.h"

#include "compiler/dialects/nn/Interfaces.h"
#include "compiler/dialects/nn/Strided.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

// An op that only describes strides has no code, so it bounds kernels like a
// library call. So does what is not fusible at all.
OpKind fsdpc::passes::kindOf(Operation *op) {
  if (nn::isStrided(op))
    return OpKind::Boundary;
  auto fusible = dyn_cast<nn::FusibleOpInterface>(op);
  return fusible ? fusible.getFusionKind() : OpKind::Boundary;
}

// A sum over blocks visits the rows that were one tensor before its reshape.
// With their domain it can join the kernel that computes them.
Domain fsdpc::passes::domainOf(Operation *op) {
  if (std::optional<RowSums> sums = rowSumsOf(op))
    return Domain::of(sums->rows);
  if (auto fusible = dyn_cast<nn::FusibleOpInterface>(op))
    return fusible.getDomain();
  return Domain::of(op->getResult(0));
}
