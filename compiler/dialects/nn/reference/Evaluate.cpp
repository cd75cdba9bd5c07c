// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The entry points of the reference interpreter: one op, and a flat function.
// Results are rounded to their types after each op, as if stored in memory, so
// that compiled code can be compared op by op.
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/dialects/nn/reference/Families.h"

#include "llvm/ADT/DenseMap.h"

using namespace mlir;

namespace fsdpc::nn {

namespace reference {

void forEachIndex(ArrayRef<int64_t> shape,
                  function_ref<void(Index, int64_t)> visit) {
  // An odometer: the last dimension counts fastest. A scalar has one element,
  // whose index is empty.
  SmallVector<int64_t> index(shape.size(), 0);
  int64_t count = llvm::product_of(shape);
  for (int64_t position = 0; position < count; ++position) {
    visit(index, position);
    for (int64_t i = shape.size() - 1; i >= 0; --i) {
      if (++index[i] < shape[i])
        break;
      index[i] = 0;
    }
  }
}

int64_t positionOf(ArrayRef<int64_t> shape, Index index) {
  int64_t position = 0;
  for (auto [size, i] : llvm::zip_equal(shape, index))
    position = position * size + i;
  return position;
}

// Sizes of 1 are read at 0, whatever the index.
int64_t broadcastPosition(ArrayRef<int64_t> shape, Index index) {
  int64_t position = 0;
  for (auto [size, i] : llvm::zip_equal(shape, index.take_back(shape.size())))
    position = position * size + (size == 1 ? 0 : i);
  return position;
}

} // namespace reference

// Built on first use, then read-only, so threads may share it.
static const reference::ReferenceTable &referenceTable() {
  static const reference::ReferenceTable table = [] {
    using namespace reference;
    ReferenceTable all;
    for (auto addFamily :
         {addElementwise, addRandom, addShape, addReductions, addNorms,
          addLosses, addAttention, addMatmul, addConvolutions, addPooling})
      addFamily(all);
    return all;
  }();
  return table;
}

// Evaluates the body of the kernel that is launched. A kernel has nn ops only.
static FailureOr<ReferenceTensors>
evaluateLaunch(LaunchOp op, ArrayRef<ReferenceTensor> operands) {
  auto kernel = SymbolTable::lookupNearestSymbolFrom<FunctionOpInterface>(
      op, op.getKernelAttr());
  if (!kernel)
    return op.emitOpError("kernel '@") << op.getKernel() << "' is absent";
  return evaluateFunction(kernel, operands);
}

FailureOr<ReferenceTensors> evaluate(Operation *op,
                                     ArrayRef<ReferenceTensor> operands) {
  // Launches and constants need symbols and attributes, not tensors, so they
  // are not in the table.
  if (auto launch = dyn_cast<LaunchOp>(op))
    return evaluateLaunch(launch, operands);
  if (auto constant = dyn_cast<ConstantOp>(op)) {
    auto value = ReferenceTensor::fromAttr(constant.getValue());
    if (failed(value))
      return op->emitOpError("has a value that cannot be read");
    return ReferenceTensors{std::move(*value)};
  }
  // The results come as zeros, so that functions may add to them.
  ReferenceTensors results;
  for (Type type : op->getResultTypes())
    results.push_back(ReferenceTensor::zeros(cast<RankedTensorType>(type)));
  const reference::ReferenceTable::Function *function =
      referenceTable().find(op);
  if (!function)
    return op->emitOpError("has no reference");
  (*function)(op, operands, results);
  // The functions of the table compute in doubles and 64-bit integers.
  for (ReferenceTensor &result : results)
    result.round();
  return results;
}

// Runs the ops in order, with a table from each value to its tensor.
FailureOr<ReferenceTensors> evaluateFunction(FunctionOpInterface function,
                                             ArrayRef<ReferenceTensor> inputs,
                                             EvaluateOther evaluateOther) {
  Block &body = function.getFunctionBody().front();
  DenseMap<Value, ReferenceTensor> values;
  for (auto [argument, input] : llvm::zip_equal(body.getArguments(), inputs))
    values[argument] = input;
  auto operandsOf = [&](Operation &op) {
    ReferenceTensors operands;
    for (Value operand : op.getOperands())
      operands.push_back(values.at(operand));
    return operands;
  };
  for (Operation &op : body.without_terminator()) {
    // Without a callback, evaluate() reports the op that has no reference.
    bool own = isa<NNDialect>(op.getDialect()) || !evaluateOther;
    ReferenceTensors operands = operandsOf(op);
    auto results = own ? evaluate(&op, operands) : evaluateOther(&op, operands);
    if (failed(results))
      return failure();
    for (auto [result, value] : llvm::zip_equal(op.getResults(), *results))
      values[result] = std::move(value);
  }
  return operandsOf(*body.getTerminator());
}

} // namespace fsdpc::nn
