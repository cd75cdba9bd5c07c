// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// stride-attention: lets attention read its operands, and write its results,
// where they are in the memory of other tensors. Heads are split and transposed
// around attention; with strides, these ops need no copies. A tree of such ops
// is marked only if all of its leaves are attentions: any other reader needs a
// dense tensor.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/dialects/nn/Strided.h"
#include "compiler/options/Options.h"
#include "passes/kernels/Passes.h"

#include "llvm/ADT/SetVector.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_STRIDEATTENTION
#include "passes/kernels/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

bool writesStrides(Operation *op) {
  auto call = dyn_cast<nn::LibraryCallOpInterface>(op);
  return call && call.writesStrides();
}

// Each library call says for each operand whether it reads one with strides.
bool takesStrides(OpOperand &use) {
  auto call = dyn_cast<nn::LibraryCallOpInterface>(use.getOwner());
  return call && call.takesStrides(use.getOperandNumber());
}

// The requirements of library calls on the strides of operands and results.
struct Requirements {
  // Bytes that divide the address of each row, if they divide those of the
  // dense tensor: on GPUs libraries load 16 bytes at a time.
  int64_t alignment = 1;

  // Calls take strides for batch, heads and rows, and expect the elements of a
  // row to be adjacent.
  bool hold(Value value, const nn::Strides &strides) const {
    auto type = nn::tensorType(value);
    int64_t width = type.getShape().back(), bytes = nn::elementBytes(type);
    auto isAligned = [&](int64_t elements) {
      return elements * bytes % alignment == 0;
    };
    if (strides.strides.size() != 4 ||
        (strides.strides.back() != 1 && width != 1))
      return false;
    return !isAligned(width) ||
           (isAligned(strides.offset) &&
            llvm::all_of(ArrayRef(strides.strides).drop_back(), isAligned));
  }
};

// The ops of one tree between attentions and a dense tensor. They are collected
// while the tree is checked and marked only if all of it fits, so a tree that
// fails leaves the IR as it was.
class Tree {
public:
  explicit Tree(const Requirements &required) : required(required) {}
  // Walks down from a value with these strides. Returns true if all of its
  // readers are attentions, directly or through ops that move elements.
  bool read(Value value, const nn::Strides &strides);
  // Walks up from a value that is to have these strides. Returns true if it
  // consists of results of attentions only.
  bool write(Value value, const nn::Strides &strides);

  void mark(StringRef how) {
    for (Operation *op : ops)
      op->setAttr(nn::kStridedAttr, StringAttr::get(op->getContext(), how));
  }
  // A tree of reshapes alone needs no copies in the first place.
  bool moves() const {
    return llvm::any_of(ops,
                        [](Operation *op) { return !isa<nn::ReshapeOp>(op); });
  }
  int64_t elements = 0; // of the tensors that attentions read

private:
  const Requirements &required;
  SetVector<Operation *> ops;
};

bool Tree::read(Value value, const nn::Strides &strides) {
  bool reads = false;
  // All branches must end at attentions: a single reader that needs dense
  // memory would bring the copy back.
  for (OpOperand &use : value.getUses()) {
    Operation *op = use.getOwner();
    if (takesStrides(use) && required.hold(value, strides)) {
      reads = true;
      continue;
    }
    if (!op->hasTrait<nn::MayLieInOperand>() || nn::isStrided(op))
      return false;
    std::optional<nn::Strides> result = nn::stridesOfResult(op, strides);
    ops.insert(op);
    if (!result || !read(op->getResult(0), *result))
      return false;
  }
  if (reads)
    elements += nn::tensorType(value).getNumElements();
  return true;
}

bool Tree::write(Value value, const nn::Strides &strides) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return false;
  // Exactly one reader may take the result into the tree. Other readers must be
  // attentions, which read it with the strides that it will have.
  if (writesStrides(op))
    return required.hold(value, strides) &&
           llvm::count_if(value.getUses(), [](OpOperand &use) {
             return !takesStrides(use);
           }) == 1;
  if (!op->hasTrait<nn::MayLieInResult>() || nn::isStrided(op))
    return false;
  ops.insert(op);
  return llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
    // Each operand is a part of the result with strides of its own, and only
    // this op may read it, since it has no memory besides.
    std::optional<nn::Strides> own = nn::stridesOfOperand(operand, strides);
    bool attention = operand.get().getDefiningOp() &&
                     writesStrides(operand.get().getDefiningOp());
    return own && (attention || operand.get().hasOneUse()) &&
           write(operand.get(), *own);
  });
}

// Marks the longest path up to a dense tensor that only attentions read. If the
// tensor is sliced, they must read all of it: otherwise the rest would live as
// long as the part that they read.
void strideOperand(Value value, const Requirements &required) {
  SmallVector<Value> sources;
  for (Operation *op = value.getDefiningOp();
       op && op->hasTrait<nn::MayLieInOperand>() && !nn::isStrided(op);
       op = op->getOperand(0).getDefiningOp())
    sources.push_back(op->getOperand(0));
  // The search begins at the dense end: a longer path saves more copies.
  for (Value source : llvm::reverse(sources)) {
    // Not weights, which are freed when their unit ends.
    Operation *producer = source.getDefiningOp();
    if (producer && (isa<fsdp::ViewOp>(producer) || writesStrides(producer)))
      continue;
    Tree tree(required);
    auto type = nn::tensorType(source);
    if (!tree.read(source, nn::denseStrides(type.getShape())) ||
        !tree.moves() || tree.elements < type.getNumElements())
      continue;
    tree.mark(nn::kReadInOperand);
    return;
  }
}

// Merges equal transposes of a value into the first. The backward has its own,
// so that the forward's need not be kept, but with strides they have no memory.
void mergeTransposes(Value value) {
  // The first transpose in program order stays, so that it precedes the users
  // of all.
  nn::TransposeOp first;
  SmallVector<nn::TransposeOp> others;
  for (Operation *user : value.getUsers()) {
    auto transpose = dyn_cast<nn::TransposeOp>(user);
    if (!transpose)
      continue;
    if (first && transpose.getPermutation() != first.getPermutation())
      return;
    if (first)
      others.push_back(transpose);
    if (!first || transpose->isBeforeInBlock(first)) {
      if (first)
        others.back() = first;
      first = transpose;
    }
  }
  for (nn::TransposeOp other : others) {
    other.replaceAllUsesWith(first.getResult());
    other.erase();
  }
}

// Marks the longest path down to a tensor that consists of results of
// attentions.
void strideResult(Value value, const Requirements &required) {
  SmallVector<Value> targets;
  // Attentions may read the value besides, as the backward does.
  auto onlyUser = [](Value value) -> Operation * {
    Operation *user = nullptr;
    for (OpOperand &use : value.getUses()) {
      if (takesStrides(use))
        continue;
      if (user)
        return nullptr;
      user = use.getOwner();
    }
    return user;
  };
  for (Operation *op = onlyUser(value);
       op && op->hasTrait<nn::MayLieInResult>() && !nn::isStrided(op);
       op = onlyUser(op->getResult(0)))
    targets.push_back(op->getResult(0));
  for (Value target : llvm::reverse(targets)) {
    Tree tree(required);
    if (!tree.write(target, nn::denseStrides(nn::shapeOf(target))) ||
        !tree.moves())
      continue;
    tree.mark(nn::kWrittenInResult);
    return;
  }
}

// Attentions are collected first, since marking changes their operands.
struct StrideAttention
    : fsdpc::passes::impl::StrideAttentionBase<StrideAttention> {
  void runOnOperation() override {
    Requirements required;
    if (fsdp::CompileOptions::of(getOperation()).isCuda())
      required.alignment = 16;
    SmallVector<Operation *> attentions;
    getOperation().walk([&](Operation *op) {
      if (writesStrides(op))
        attentions.push_back(op);
    });
    if (attentions.empty())
      return markAllAnalysesPreserved();
    for (Operation *op : attentions) {
      for (OpOperand &operand : op->getOpOperands())
        if (takesStrides(operand))
          strideOperand(operand.get(), required);
      for (Value result : op->getResults()) {
        mergeTransposes(result);
        strideResult(result, required);
      }
    }
  }
};

} // namespace
