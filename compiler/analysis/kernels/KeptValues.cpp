// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Walks forward from each costly op to the loops that read it. A value is kept
// if a later loop than the first one reads it.
#include "compiler/analysis/kernels/KeptValues.h"

#include "compiler/analysis/kernels/BodyWalk.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;

namespace {

constexpr int64_t kCostly = 12; // simple ops: more than a store and a load cost

// The loops that read a value. Levels count as those of valuesToKeep.
struct Readers {
  int first = INT_MAX, last = -1; // levels of the loops that read
  bool inPlace = true; // each reads the element at its own index only

  void add(int level) {
    first = std::min(first, level);
    last = std::max(last, level);
  }
};

// Looks through ops that compute on: their loops are those of what reads them.
void findReaders(Value value, ArrayRef<KeptValue> kept,
                 llvm::function_ref<int(Value)> level, Readers &readers,
                 llvm::SmallPtrSetImpl<Value> &seen) {
  if (!seen.insert(value).second)
    return; // many paths may lead to one value
  for (Operation *user : value.getUsers()) {
    if (isa<nn::ReduceOp, func::ReturnOp>(user)) {
      readers.add(level(value));
      continue;
    }
    Value result = user->getResult(0);
    const KeptValue *known = llvm::find_if(
        kept, [&](const KeptValue &other) { return other.value == result; });
    if (known != kept.end()) {
      readers.add(known->level);
      continue;
    }
    readers.inPlace &=
        isa<nn::ElementwiseOpInterface>(user) || isa<nn::ReshapeOp>(user);
    findReaders(result, kept, level, readers, seen);
  }
}

} // namespace

bool analysis::isCostly(Operation *op) { return costOf(op) >= kCostly; }

SmallVector<KeptValue, 2>
analysis::valuesToKeep(func::FuncOp kernel, int64_t count,
                       llvm::function_ref<int(Value)> level,
                       llvm::function_ref<bool(Operation *)> isWanted) {
  SmallVector<KeptValue, 2> kept;
  Block &body = kernel.getBody().front();
  Operation *terminator = body.getTerminator();
  // Last first: a value that is kept ends the search of what it is computed
  // from.
  for (Operation &op : llvm::reverse(body.without_terminator())) {
    if (!isa<nn::ElementwiseOpInterface>(op) || !isWanted(&op))
      continue;
    Value value = op.getResult(0);
    auto type = nn::tensorType(value);
    if (!type.getElementType().isF32() || type.getNumElements() != count ||
        llvm::is_contained(terminator->getOperands(), value))
      continue;
    Readers readers;
    llvm::SmallPtrSet<Value, 16> seen;
    findReaders(value, kept, level, readers, seen);
    // One loop reads it, and has it at hand.
    if (readers.first >= readers.last)
      continue;
    KeptValue &entry = kept.emplace_back(KeptValue{value, readers.first});
    // An output's memory holds the value until it is written, in the last loop
    // that reads the value; that saves a row of the stack.
    for (auto [i, output] : llvm::enumerate(terminator->getOperands())) {
      int number = i;
      bool isFree = llvm::none_of(
          kept, [&](const KeptValue &other) { return other.output == number; });
      auto outputType = nn::tensorType(output);
      if (isFree && readers.inPlace && outputType.getElementType().isF32() &&
          outputType.getNumElements() == count && level(output) >= readers.last)
        entry.output = number;
    }
  }
  return kept;
}
