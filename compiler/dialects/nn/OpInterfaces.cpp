// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Iteration domains, which `outline-kernels` compares to group ops.
#include "compiler/dialects/nn/OpInterfaces.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace fsdpc::nn {

// Sorts the axes, so that domains compare equal whatever order an op gives.
Domain Domain::of(Value value, ArrayRef<int64_t> axes) {
  Domain domain;
  domain.shape.assign(cast<RankedTensorType>(value.getType()).getShape());
  domain.axes.assign(axes);
  llvm::sort(domain.axes);
  return domain;
}

Domain Domain::of(Value value) { return of(value, ArrayRef<int64_t>()); }

Domain Domain::rowsOf(Value value) {
  return of(value, cast<RankedTensorType>(value.getType()).getRank() - 1);
}

// Norms over channels reduce all axes but the channels'.
Domain Domain::allBut(int64_t kept, Value value) {
  SmallVector<int64_t> axes;
  int64_t rank = cast<RankedTensorType>(value.getType()).getRank();
  for (int64_t axis = 0; axis < rank; ++axis)
    if (axis != kept)
      axes.push_back(axis);
  return of(value, axes);
}

// Statistics drop the reduced axes, nn.reduce keeps them with size 1: both are
// one element per reduction.
bool Domain::isReducedShape(ArrayRef<int64_t> other) const {
  SmallVector<int64_t> kept, dropped;
  for (auto [axis, size] : llvm::enumerate(shape)) {
    bool reduced = llvm::is_contained(axes, static_cast<int64_t>(axis));
    kept.push_back(reduced ? 1 : size);
    if (!reduced)
      dropped.push_back(size);
  }
  return other == ArrayRef<int64_t>(kept) ||
         other == ArrayRef<int64_t>(dropped);
}

} // namespace fsdpc::nn
