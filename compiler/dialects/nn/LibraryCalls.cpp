// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The answers of library ops to LibraryCallOpInterface: their work in flops and
// bytes, the library that computes them on a GPU, and how they use memory (what
// they can accumulate into, and which operands may be strided).
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/CompositeOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/Products.h"

#include <algorithm>

using namespace mlir;

namespace fsdpc::nn {

// ---- products ----

// A multiplication and an addition count as two flops. Terms that are added to
// the sums do not count, nor do epilogues.
template <typename ProductOp> static int64_t productFlops(ProductOp op) {
  ArrayRef<int64_t> shape = shapeOf(op.getLhs());
  int64_t depth = op.getTransposeA() ? shape[shape.size() - 2] : shape.back();
  return 2 * tensorType(op.getResult()).getNumElements() * depth;
}

int64_t MatmulOp::getFlops() { return productFlops(*this); }
int64_t FusedMatmulOp::getFlops() { return productFlops(*this); }

FailureOr<StringRef> MatmulOp::chooseLibrary(StringRef) {
  return StringRef("cublaslt");
}

FailureOr<StringRef> FusedMatmulOp::chooseLibrary(StringRef) {
  return StringRef("cublaslt");
}

Value MatmulOp::getOverwritten() { return overwrittenBy(*this); }

// The library adds a bias to all rows of one matrix, which a batch is only if
// it shares its right operand.
bool MatmulOp::canAddBias() {
  return !getAccumulator() && shapeOf(getRhs()).size() == 2;
}

void MatmulOp::addBias(Value row) { getAccumulatorMutable().assign(row); }

// A piece is contiguous, so the product cannot tell it from a tensor of its
// own.
bool MatmulOp::writesPieces() { return true; }
bool FusedMatmulOp::writesPieces() { return true; }

// ---- convolution ----

// An element of the output takes as many products as one filter has elements
// (input channels of its group × height × width). The three ops pair the same
// elements, so they do the same work.
static int64_t convolutionFlops(Value output, Value filter) {
  return 2 * tensorType(output).getNumElements() *
         llvm::product_of(shapeOf(filter).drop_front());
}

int64_t Conv2dOp::getFlops() {
  return convolutionFlops(getResult(), getFilter());
}

int64_t Conv2dGradInputOp::getFlops() {
  return convolutionFlops(getGrad(), getFilter());
}

int64_t Conv2dGradFilterOp::getFlops() {
  return convolutionFlops(getGrad(), getResult());
}

FailureOr<StringRef> Conv2dOp::chooseLibrary(StringRef) {
  return StringRef("cudnn");
}
FailureOr<StringRef> Conv2dGradInputOp::chooseLibrary(StringRef) {
  return StringRef("cudnn");
}
FailureOr<StringRef> Conv2dGradFilterOp::chooseLibrary(StringRef) {
  return StringRef("cudnn");
}

// The gradient of a weight goes to its unit's buffer of gradients.
bool Conv2dGradFilterOp::lendsResults() { return false; }

// ---- pooling: kernels of the runtime; memory bounds them, not arithmetic ----

FailureOr<StringRef> MaxPool2dOp::chooseLibrary(StringRef) {
  return StringRef("own");
}
FailureOr<StringRef> MaxPool2dGradOp::chooseLibrary(StringRef) {
  return StringRef("own");
}
FailureOr<StringRef> AvgPool2dOp::chooseLibrary(StringRef) {
  return StringRef("own");
}
FailureOr<StringRef> AvgPool2dGradOp::chooseLibrary(StringRef) {
  return StringRef("own");
}

bool MaxPool2dOp::lendsResults() { return false; }
bool MaxPool2dGradOp::lendsResults() { return false; }
bool AvgPool2dOp::lendsResults() { return false; }
bool AvgPool2dGradOp::lendsResults() { return false; }

// ---- attention ----

// Returns the pairs of a query and a key that it sees, over batches and heads.
// Under a causal mask the last query sees all keys, and each query before it
// one key less.
static int64_t pairsSeen(Value query, Value key, bool causal) {
  ArrayRef<int64_t> q = shapeOf(query);
  int64_t keys = shapeOf(key)[2], seeing = std::min(q[2], keys);
  int64_t pairs = causal ? seeing * (2 * keys - seeing + 1) / 2 : q[2] * keys;
  return q[0] * q[1] * pairs;
}

// Two products per pair, q · k and p · v, of two flops per element.
int64_t AttentionOp::getFlops() {
  int64_t width = shapeOf(getQuery()).back(),
          valueWidth = shapeOf(getValue()).back();
  return 2 * pairsSeen(getQuery(), getKey(), getCausal()) *
         (width + valueWidth);
}

// The backward computes the scores again: q · k, dq and dk take the width of
// the keys, dp and dv that of the values.
int64_t AttentionGradOp::getFlops() {
  int64_t width = shapeOf(getQuery()).back(),
          valueWidth = shapeOf(getValue()).back();
  return 2 * pairsSeen(getQuery(), getKey(), getCausal()) *
         (3 * width + 2 * valueWidth);
}

// Returns why cuDNN's fused attention does not take an attention, or an empty
// string. Forward and backward of one attention agree, because both answer from
// what they share.
template <typename AttentionOp> static std::string whyNotFused(AttentionOp op) {
  constexpr int64_t widest = 128;
  RankedTensorType query = tensorType(op.getQuery()),
                   key = tensorType(op.getKey());
  std::string reason;
  llvm::raw_string_ostream text(reason);
  for (int64_t width :
       {query.getDimSize(3), tensorType(op.getValue()).getDimSize(3)})
    if (reason.empty() && (width > widest || width % 8))
      text << "heads have " << width
           << " elements, which is not a multiple of 8 up to " << widest;
  if (!isHalf(query.getElementType()))
    reason = "the element type is neither bf16 nor f16";
  else if (op.getMask())
    reason = "it has a mask";
  else if (op.getCausal() && query.getDimSize(2) != key.getDimSize(2))
    reason = "it is causal with different numbers of queries and keys";
  return reason;
}

template <typename AttentionOp>
static FailureOr<StringRef> chooseAttention(AttentionOp op, StringRef asked) {
  std::string reason = whyNotFused(op);
  // Asking for cuDNN by name is a requirement; "auto" falls back to products.
  if (asked == "cudnn" && !reason.empty()) {
    op.emitError("cuDNN does not support this attention, but "
                 "'--attention=cudnn' requires it: ")
        << reason << "; use '--attention=auto'";
    return failure();
  }
  return StringRef(asked == "products" || !reason.empty() ? "products"
                                                          : "cudnn");
}

FailureOr<StringRef> AttentionOp::chooseLibrary(StringRef attention) {
  return chooseAttention(*this, attention);
}

FailureOr<StringRef> AttentionGradOp::chooseLibrary(StringRef attention) {
  return chooseAttention(*this, attention);
}

// All operands but masks and statistics.
bool AttentionOp::takesStrides(unsigned operand) { return operand < 3; }
bool AttentionGradOp::takesStrides(unsigned operand) { return operand < 5; }
bool AttentionOp::writesStrides() { return true; }
bool AttentionGradOp::writesStrides() { return true; }

} // namespace fsdpc::nn
