// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference of matrix products: one dot product per element of the result,
// summed in doubles.
#include "compiler/dialects/nn/reference/Families.h"

using namespace mlir;

namespace fsdpc::nn::reference {

/// Returns the position of element (row, column) of a matrix, or of its
/// transpose, in the batch to which `index` of the result belongs.
static int64_t elementOf(const ReferenceTensor &tensor, Index index,
                         int64_t row, int64_t column, bool transposed) {
  // Batch dimensions broadcast: leading ones may be absent, others may be 1.
  SmallVector<int64_t> at(index.take_back(tensor.shape.size()));
  int64_t rank = at.size();
  at[rank - 2] = transposed ? column : row;
  at[rank - 1] = transposed ? row : column;
  for (int64_t i = 0; i < rank - 2; ++i)
    if (tensor.shape[i] == 1)
      at[i] = 0;
  return positionOf(tensor.shape, at);
}

/// Writes the sums, which start from the first `addends` inputs after the
/// matrices. One of rank 1 is a row, added to each row.
template <typename ProductOp>
static void multiply(ProductOp op, Inputs in, size_t addends,
                     ReferenceTensor &out) {
  const ReferenceTensor &lhs = in[0], &rhs = in[1];
  bool ta = op.getTransposeA(), tb = op.getTransposeB();
  int64_t inner = ta ? lhs.shape[lhs.shape.size() - 2] : lhs.shape.back();
  forEachIndex(out.shape, [&](Index index, int64_t position) {
    int64_t row = index[index.size() - 2], column = index.back();
    double sum = 0;
    for (const ReferenceTensor &start : in.slice(2, addends))
      sum += start.floats[start.shape.size() == 1 ? column : position];
    for (int64_t k = 0; k < inner; ++k)
      sum += lhs.floats[elementOf(lhs, index, row, k, ta)] *
             rhs.floats[elementOf(rhs, index, k, column, tb)];
    out.floats[position] = sum;
  });
}

static void matmul(MatmulOp op, Inputs in, ReferenceTensors &out) {
  multiply(op, in, in.size() - 2, out[0]);
}

/// Adds the rows of `matrix`, or of its transpose.
static void addRows(const ReferenceTensor &matrix, bool transposed,
                    ReferenceTensor &sums) {
  forEachIndex(matrix.shape, [&](Index index, int64_t position) {
    sums.floats[index[transposed ? 0 : 1]] += matrix.floats[position];
  });
}

static void fusedMatmul(FusedMatmulOp op, Inputs in, ReferenceTensors &out) {
  multiply(op, in, bool(op.getBias()) + bool(op.getAddend()), out[0]);
  std::vector<double> &values = out[0].floats;
  switch (op.getEpilogue()) {
  case Epilogue::none:
    return;
  case Epilogue::gelu:
    if (op.getExtra())
      out[1].floats = values;
    for (double &value : values)
      value = gelu(value, GeluForm::tanh);
    return;
  case Epilogue::gelu_grad:
    for (auto [value, input] : llvm::zip_equal(values, in.back().floats))
      value *= geluDerivative(input, GeluForm::tanh);
    return;
  case Epilogue::sum_lhs:
    return addRows(in[0], false, out[1]); // stored k×m
  case Epilogue::sum_rhs:
    return addRows(in[1], op.getTransposeB(), out[1]);
  }
}

void addMatmul(ReferenceTable &table) {
  table.add<MatmulOp>(matmul);
  table.add<FusedMatmulOp>(fusedMatmul);
}

} // namespace fsdpc::nn::reference
