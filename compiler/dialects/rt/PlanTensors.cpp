// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The bytes of the tensors that a library call reads and writes, from its plan.
// The plan is what the runtime passes on to the library, so a pointer that
// declares fewer bytes is found (verify-rt).
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/rt/RTDialect.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::rt;

// The elements from the first to the last one of a strided tensor whose rows
// are `dense` elements. `sizes` may have more entries than there are strides.
static int64_t extent(ArrayRef<int64_t> sizes, DenseI64ArrayAttr strides,
                      int64_t dense) {
  for (auto [size, stride] : llvm::zip(sizes, strides.asArrayRef()))
    dense += (size - 1) * stride;
  return dense;
}

// ---- matrix products ----

// One matrix per index of the batch. The strides say how far these matrices are
// apart; the matrices themselves are dense.
int64_t MatmulPlanAttr::bytesOfA() const {
  return extent(getBatch(), getStrideA(), getM() * getK()) *
         nn::elementBytes(getA());
}

int64_t MatmulPlanAttr::bytesOfB() const {
  return extent(getBatch(), getStrideB(), getK() * getN()) *
         nn::elementBytes(getB());
}

int64_t MatmulPlanAttr::bytesOfC() const {
  return extent(getBatch(), getStrideC(), getM() * getN()) *
         nn::elementBytes(getC());
}

int64_t MatmulPlanAttr::bytesOfBias() const {
  return getN() * nn::elementBytes(getC());
}

// The second result of an epilogue: GELU's input, or sums over rows or columns.
int64_t MatmulPlanAttr::bytesOfExtra() const {
  if (!getEpilogue() || getEpilogue().getValue() == "gelu_extra")
    return bytesOfC();
  return (getEpilogue().getValue() == "sum_lhs" ? getM() : getN()) *
         nn::elementBytes(getC());
}

// ---- convolution and pooling ----

// The operands are these tensors of the forward, by kind: "weight" reads the
// output's cotangent as `w` and writes the filter's as `y`.
int64_t ConvolutionPlanAttr::bytesOfX() const {
  return llvm::product_of(
             (getKind() == "input" ? getOutput() : getInput()).asArrayRef()) *
         nn::elementBytes(getElement());
}

int64_t ConvolutionPlanAttr::bytesOfW() const {
  return llvm::product_of(
             (getKind() == "weight" ? getOutput() : getFilter()).asArrayRef()) *
         nn::elementBytes(getElement());
}

int64_t ConvolutionPlanAttr::bytesOfY() const {
  DenseI64ArrayAttr shape = getKind() == "forward" ? getOutput()
                            : getKind() == "input" ? getInput()
                                                   : getFilter();
  return llvm::product_of(shape.asArrayRef()) * nn::elementBytes(getElement());
}

// The gradient reads the output's shape and writes the input's.
static bool isBackward(PoolingPlanAttr plan) {
  return plan.getKind().ends_with("_grad");
}

int64_t PoolingPlanAttr::bytesOfSource() const {
  return llvm::product_of(
             (isBackward(*this) ? getOutput() : getInput()).asArrayRef()) *
         nn::elementBytes(getElement());
}

int64_t PoolingPlanAttr::bytesOfDestination() const {
  return llvm::product_of(
             (isBackward(*this) ? getInput() : getOutput()).asArrayRef()) *
         nn::elementBytes(getElement());
}

// An i32 per element of the output.
int64_t PoolingPlanAttr::bytesOfWorkspace() const {
  return llvm::product_of(getOutput().asArrayRef()) * int64_t(sizeof(int32_t));
}

// ---- attention ----

// Queries, outputs and their gradients have the sizes B×H×T, keys and values
// B×G×S. `width` is the number of elements of a row, which is dense.
static int64_t queryBytes(AttentionPlanAttr plan, DenseI64ArrayAttr strides,
                          int64_t width) {
  return extent(plan.getQuery().asArrayRef().take_front(3), strides, width) *
         nn::elementBytes(plan.getElement());
}

static int64_t keyBytes(AttentionPlanAttr plan, DenseI64ArrayAttr strides,
                        int64_t width) {
  return extent(plan.getKey().asArrayRef().take_front(3), strides, width) *
         nn::elementBytes(plan.getElement());
}

static int64_t widthOf(AttentionPlanAttr plan) { return plan.getQuery()[3]; }

int64_t AttentionPlanAttr::bytesOfQuery() const {
  return queryBytes(*this, getStrideQuery(), widthOf(*this));
}

int64_t AttentionPlanAttr::bytesOfKey() const {
  return keyBytes(*this, getStrideKey(), widthOf(*this));
}

int64_t AttentionPlanAttr::bytesOfValue() const {
  return keyBytes(*this, getStrideValue(), getValueWidth());
}

// A mask may broadcast, with strides of 0, so its extent follows from the sizes
// of the scores.
int64_t AttentionPlanAttr::bytesOfMask() const {
  if (!getMask())
    return 0;
  ArrayRef<int64_t> query = getQuery();
  int64_t sizes[] = {query[0], query[1], query[2], getKey()[2]};
  return extent(sizes, getStrideMask(), 1) * nn::elementBytes(getMask());
}

int64_t AttentionPlanAttr::bytesOfOutput() const {
  return queryBytes(*this, getStrideOutput(), getValueWidth());
}

// The logarithm of the sum of exponentials of each row, in f32.
int64_t AttentionPlanAttr::bytesOfLse() const {
  return llvm::product_of(getQuery().asArrayRef().take_front(3)) *
         int64_t(sizeof(float));
}

int64_t AttentionPlanAttr::bytesOfGrad() const {
  return queryBytes(*this, getStrideGrad(), getValueWidth());
}

int64_t AttentionPlanAttr::bytesOfDQuery() const {
  return queryBytes(*this, getStrideDQuery(), widthOf(*this));
}

int64_t AttentionPlanAttr::bytesOfDKey() const {
  return keyBytes(*this, getStrideDKey(), widthOf(*this));
}

int64_t AttentionPlanAttr::bytesOfDValue() const {
  return keyBytes(*this, getStrideDValue(), getValueWidth());
}
