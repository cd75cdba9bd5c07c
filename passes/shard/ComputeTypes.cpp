// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides which ops compute in 16 bits. A rounding to bf16 costs an activation
// one part in 512, as torch's does; it destroys an angle of 1000 · t, a weight
// of 1 + w that is near 1, or the exponent of a decay. So f32 ends where values
// meet a product with a weight, and not before.
#include "passes/shard/ComputeTypes.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

bool passes::keepsType(Operation *op, Value operand) {
  auto precision = dyn_cast<nn::PrecisionOpInterface>(op);
  return precision && precision.keepsType(operand);
}

bool passes::isStatistic(OpResult result) {
  auto precision = dyn_cast<nn::PrecisionOpInterface>(result.getOwner());
  return precision && precision.isStatistic(result);
}

static bool isProduct(Operation *op) {
  return isa<nn::LibraryCallOpInterface>(op);
}

// Indices are integers; an i1 is a condition.
static bool readsIndices(Operation *op) {
  return llvm::any_of(op->getOperands(), [](Value operand) {
    Type element = getElementTypeOrSelf(operand.getType());
    return element.isInteger(32) || element.isInteger(64);
  });
}

// Returns true if the op reads elements wherever they lie, and so takes those
// of 16 bits as they are, beside others.
static bool movesElements(Operation *op) {
  return isa<nn::ElementSourceOpInterface, nn::CopyOp>(op) || readsIndices(op);
}

bool ComputeTypes::onlyMoves(Operation *op) {
  auto elementwise = dyn_cast<nn::ElementwiseOpInterface>(op);
  return movesElements(op) || (elementwise && elementwise.isExact());
}

ValueOrigin ComputeTypes::originOf(Value value) const {
  auto known = origins.find(value);
  if (known != origins.end())
    return known->second;
  return isInHalf(value) ? ValueOrigin::Activation : ValueOrigin::Data;
}

bool ComputeTypes::isInHalf(Value value) const {
  Type element = getElementTypeOrSelf(value.getType());
  return nn::isHalf(element) || kept.contains(value) ||
         (castInputs && isa<BlockArgument>(value) && element.isF32());
}

// Returns true for an f32 value that depends on parameters.
bool ComputeTypes::isWide(Value value) const {
  return getElementTypeOrSelf(value.getType()).isF32() && !isInHalf(value) &&
         originOf(value) != ValueOrigin::Data;
}

bool ComputeTypes::computesInHalf(Operation *op) const {
  bool parameter = false, activation = false, wide = false, derived = false;
  for (Value operand : op->getOperands()) {
    // An operand that keeps its type says nothing about the type of the op.
    if (keepsType(op, operand))
      continue;
    bool isHalf = isInHalf(operand);
    bool isParameter = originOf(operand) == ValueOrigin::Parameter;
    parameter |= isHalf && isParameter;
    activation |= isHalf && !isParameter;
    derived |= isWide(operand) && isParameter;
    wide |= isWide(operand);
  }
  if (isProduct(op))
    return parameter || activation || derived;
  if (movesElements(op))
    return parameter || activation;
  if (wide)
    return false;
  return activation || (parameter && onlyMoves(op));
}

bool ComputeTypes::readsParameters(Operation *op) const {
  return llvm::any_of(op->getOperands(), [&](Value operand) {
    return !keepsType(op, operand) && originOf(operand) != ValueOrigin::Data;
  });
}

void ComputeTypes::note(Operation *op) {
  ValueOrigin origin = op->hasTrait<fsdp::HoldsWeights>()
                           ? ValueOrigin::Parameter
                           : ValueOrigin::Data;
  for (Value operand : op->getOperands())
    if (!keepsType(op, operand))
      origin = std::max(origin, originOf(operand));
  if (origin == ValueOrigin::Parameter && (isProduct(op) || readsIndices(op)))
    origin = ValueOrigin::Activation;
  if (origin != ValueOrigin::Data)
    for (OpResult result : op->getResults())
      if (!isStatistic(result))
        origins[result] = origin;
}
