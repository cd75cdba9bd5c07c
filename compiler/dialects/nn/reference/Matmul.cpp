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

static void matmul(MatmulOp op, Inputs in, ReferenceTensors &out) {
  const ReferenceTensor &lhs = in[0], &rhs = in[1];
  bool ta = op.getTransposeA(), tb = op.getTransposeB();
  int64_t inner = ta ? lhs.shape[lhs.shape.size() - 2] : lhs.shape.back();
  forEachIndex(out[0].shape, [&](Index index, int64_t position) {
    int64_t row = index[index.size() - 2], column = index.back();
    double sum = 0;
    // An accumulator of rank 1 is a bias, added to each row.
    if (in.size() == 3)
      sum = in[2].floats[in[2].shape.size() == 1 ? column : position];
    for (int64_t k = 0; k < inner; ++k)
      sum += lhs.floats[elementOf(lhs, index, row, k, ta)] *
             rhs.floats[elementOf(rhs, index, k, column, tb)];
    out[0].floats[position] = sum;
  });
}

void addMatmul(ReferenceTable &table) { table.add<MatmulOp>(matmul); }

} // namespace fsdpc::nn::reference
