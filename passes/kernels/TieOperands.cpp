// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// tie-operands: finds results that may take the memory of an operand, which
// saves a buffer and cache space. A kernel may overwrite an operand in place
// only if each element is read before it is written, by the step that writes
// it; the planner decides later which ties it uses.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "passes/kernels/OpKinds.h"
#include "passes/kernels/Passes.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_TIEOPERANDS
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// Returns true if each op reads and writes at one index only. Sums over rows
// read each element when it is written.
bool isMap(func::FuncOp kernel) {
  return llvm::none_of(
      kernel.getBody().front().without_terminator(), [](Operation &op) {
        OpKind kind = kindOf(&op);
        return (kind == OpKind::Reduction && !rowSumsOf(&op)) ||
               kind == OpKind::Alone;
      });
}

// Returns true if the op only leads to sums over rows.
bool isForRowSums(Operation *op) {
  return rowSumsOf(op) || (isa<nn::ReshapeOp>(op) &&
                           llvm::all_of(op->getUsers(), [](Operation *user) {
                             return rowSumsOf(user);
                           }));
}

// Returns true if the argument is read only at the index that is being written.
bool readInPlace(BlockArgument argument, ArrayRef<int64_t> shape) {
  return llvm::all_of(argument.getUsers(), [&](Operation *user) {
    if (isForRowSums(user))
      return true;
    auto type = dyn_cast<RankedTensorType>(user->getNumResults()
                                               ? user->getResult(0).getType()
                                               : argument.getType());
    return kindOf(user) == OpKind::Map && type.getShape() == shape &&
           cast<RankedTensorType>(argument.getType()).getShape() == shape;
  });
}

// Returns true if all values of the kernel have one shape, so that an index
// means the same element in each.
bool onOneShape(func::FuncOp kernel, ArrayRef<int64_t> shape) {
  for (Operation &op : kernel.getBody().front().without_terminator()) {
    bool moves = kindOf(&op) == OpKind::Index || isa<nn::SliceOp>(op);
    for (Value operand : op.getOperands())
      if (moves && operand.getDefiningOp())
        return false; // an inner value, read at another index
  }
  Operation *terminator = kernel.getBody().front().getTerminator();
  return llvm::all_of(terminator->getOperands(), [&](Value value) {
    return cast<RankedTensorType>(value.getType()).getShape() == shape ||
           (value.getDefiningOp() && rowSumsOf(value.getDefiningOp()));
  });
}

// Returns the argument to whose rows the gradient of an embedding is added.
std::optional<unsigned> accumulatorOf(func::FuncOp kernel) {
  Value result = kernel.getBody().front().getTerminator()->getOperand(0);
  auto scatter = result.getDefiningOp<nn::EmbeddingGradOp>();
  auto argument =
      scatter ? dyn_cast_if_present<BlockArgument>(scatter.getAccumulator())
              : BlockArgument();
  return argument ? std::optional(argument.getArgNumber()) : std::nullopt;
}

// A result, and the argument whose memory it may take.
struct Tie {
  unsigned result, argument;
};

// Ties the gradients of logits to the logits, the largest tensors of a language
// model: the kernel reads all of a row, its target included, before it writes
// the row. Nothing else in the kernel may reduce, or write a tensor of this
// shape.
std::optional<Tie> logitsInPlace(func::FuncOp kernel) {
  nn::CrossEntropyRowsOp rows;
  for (Operation &op : kernel.getBody().front().without_terminator()) {
    if (kindOf(&op) == OpKind::Reduction && rows)
      return std::nullopt;
    if (auto found = dyn_cast<nn::CrossEntropyRowsOp>(op))
      rows = found;
    else if (kindOf(&op) == OpKind::Reduction)
      return std::nullopt;
  }
  if (!rows)
    return std::nullopt;
  auto type = rows.getDlogits().getType();
  Operation *terminator = kernel.getBody().front().getTerminator();
  std::optional<unsigned> result;
  for (OpOperand &output : terminator->getOpOperands()) {
    if (cast<ShapedType>(output.get().getType()).getShape() != type.getShape())
      continue;
    if (output.get() != rows.getDlogits())
      return std::nullopt;
    result = output.getOperandNumber();
  }
  // Ops before the rows (adding a bias) must read the logits at the same index.
  for (BlockArgument argument : kernel.getArguments()) {
    bool inRows = llvm::all_of(argument.getUsers(), [&](Operation *user) {
      return user == rows ||
             (kindOf(user) == OpKind::Map &&
              nn::shapeOf(user->getResult(0)) == type.getShape());
    });
    if (result && argument.getType() == type && inRows)
      return Tie{*result, argument.getArgNumber()};
  }
  return std::nullopt;
}

struct TieOperands : fsdpc::passes::impl::TieOperandsBase<TieOperands> {
  void runOnOperation() override {
    SymbolTable kernels(getOperation());
    getOperation().walk([&](nn::LaunchOp launch) {
      tie(launch, kernels.lookup<func::FuncOp>(launch.getKernel()));
    });
  }

  void tie(nn::LaunchOp launch, func::FuncOp kernel) {
    // The two special forms have one tie each, and their kernels are not maps.
    if (std::optional<unsigned> table = accumulatorOf(kernel))
      return tie(launch, {0, *table});
    if (std::optional<Tie> logits = logitsInPlace(kernel))
      return tie(launch, *logits);
    if (!isMap(kernel))
      return;
    // Sums over rows are shorter than what they sum.
    OpResult longest =
        *llvm::max_element(launch->getResults(), [](OpResult a, OpResult b) {
          return nn::tensorBytes(a.getType()) < nn::tensorBytes(b.getType());
        });
    ArrayRef<int64_t> shape =
        cast<RankedTensorType>(longest.getType()).getShape();
    if (!onOneShape(kernel, shape))
      return;
    SmallVector<int64_t> tied(launch.getNumResults(), -1);
    DenseSet<Value> taken;
    // An operand gives its memory to one result only. The first result that
    // fits takes it.
    for (OpResult result : launch->getResults())
      for (OpOperand &operand : launch->getOpOperands()) {
        Value value = operand.get();
        unsigned index = operand.getOperandNumber();
        // Equal sizes suffice: a result may have another element type of the
        // same width.
        if (taken.contains(value) ||
            nn::tensorBytes(value.getType()) !=
                nn::tensorBytes(result.getType()) ||
            !value.getDefiningOp() || !isLastUse(value, launch) ||
            !readInPlace(kernel.getArgument(index), shape))
          continue;
        tied[result.getResultNumber()] = index;
        taken.insert(value);
        ++ties;
        break;
      }
    if (!taken.empty())
      launch.setTied(tied);
  }

  // A tie that has been proved for the kernel still needs the launch to be the
  // last reader of the operand.
  void tie(nn::LaunchOp launch, Tie only) {
    if (!isLastUse(launch->getOperand(only.argument), launch))
      return;
    SmallVector<int64_t> tied(launch.getNumResults(), -1);
    tied[only.result] = only.argument;
    launch.setTied(tied);
    ++ties;
  }

  // Returns true if the launch is the last use of `value`. Views of its memory
  // count as uses; a value that is itself a view, or memory behind a symbol, is
  // never overwritten.
  static bool isLastUse(Value value, nn::LaunchOp launch) {
    Operation *producer = value.getDefiningOp();
    // Only memory that a kernel or a library call has made for its result may
    // be overwritten.
    auto call = dyn_cast<nn::LibraryCallOpInterface>(producer);
    if (!isa<nn::LaunchOp>(producer) && !(call && call.lendsResults()))
      return false;
    unsigned uses = 0;
    for (Operation *user : value.getUsers()) {
      if (user != launch &&
          (nn::isView(user) || user->hasTrait<nn::HoldsOperands>() ||
           !user->isBeforeInBlock(launch)))
        return false;
      uses += user == launch;
    }
    return uses == 1;
  }
};

} // namespace
