// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tells how far each call reaches, op by op. The numbers come from what the
// runtime passes on to its kernels and libraries (plans, kernels' types,
// layouts), never from pointers, so that a pointer that declares too little is
// found.
#include "passes/runtime/Reach.h"

#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/rt/RTDialect.h"
#include "compiler/options/Options.h"
#include "passes/runtime/Pointers.h"
#include "runtime/abi/norm_digits.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using nn::elementBytes;
using nn::tensorBytes;

namespace {

// The elements from the first to the last one of a strided tensor whose rows
// are `dense` elements. `sizes` may have more entries than there are strides.
int64_t extent(ArrayRef<int64_t> sizes, DenseI64ArrayAttr strides,
               int64_t dense) {
  for (auto [size, stride] : llvm::zip(sizes, strides.asArrayRef()))
    dense += (size - 1) * stride;
  return dense;
}

// ---- library calls ----

// A matmul reads one matrix per index of the batch. The strides say how far
// these matrices are apart; the matrices themselves are dense.
int64_t bytesOf(rt::MatmulOp op, unsigned index) {
  rt::MatmulPlanAttr plan = op.getPlan();
  int64_t m = plan.getM(), n = plan.getN(), k = plan.getK();
  ArrayRef<int64_t> batch = plan.getBatch().asArrayRef();
  if (index == 0)
    return extent(batch, plan.getStrideA(), m * k) * elementBytes(plan.getA());
  if (index == 1)
    return extent(batch, plan.getStrideB(), k * n) * elementBytes(plan.getB());
  int64_t width = elementBytes(plan.getC());
  Value operand = op->getOperand(index);
  if (operand == op.getBias())
    return n * width;
  bool sums =
      plan.getEpilogue() && plan.getEpilogue().getValue() != "gelu_extra";
  if (operand == op.getExtra() && sums)
    return (plan.getEpilogue().getValue() == "sum_lhs" ? m : n) * width;
  return extent(batch, plan.getStrideC(), m * n) * width;
}

int64_t bytesOf(rt::ConvolutionOp op, unsigned index) {
  rt::ConvolutionPlanAttr plan = op.getPlan();
  // The operands x, w and y are these tensors of the forward, by kind.
  ArrayRef<int64_t> input = plan.getInput().asArrayRef(),
                    filter = plan.getFilter().asArrayRef(),
                    output = plan.getOutput().asArrayRef();
  ArrayRef<int64_t> forward[] = {input, filter, output},
                    ofInput[] = {output, filter, input},
                    ofWeight[] = {input, output, filter};
  ArrayRef<int64_t> shape = plan.getKind() == "forward" ? forward[index]
                            : plan.getKind() == "input" ? ofInput[index]
                                                        : ofWeight[index];
  return llvm::product_of(shape) * elementBytes(plan.getElement());
}

// The operands are source, result and, for maximum pooling, a workspace with
// one 32-bit index per output element. The gradient reads the output's shape
// and writes the input's.
int64_t bytesOf(rt::PoolingOp op, unsigned index) {
  rt::PoolingPlanAttr plan = op.getPlan();
  int64_t input = llvm::product_of(plan.getInput().asArrayRef()),
          output = llvm::product_of(plan.getOutput().asArrayRef());
  if (index == 2) // the workspace
    return output * 4;
  bool backward = plan.getKind().ends_with("_grad");
  return ((index == 0) != backward ? input : output) *
         elementBytes(plan.getElement());
}

// The tensors of attention, of which forward and backward take different ones.
struct AttentionReach {
  explicit AttentionReach(rt::AttentionPlanAttr plan)
      : plan(plan), query(plan.getQuery().asArrayRef()),
        key(plan.getKey().asArrayRef()) {}

  // Queries, outputs and their gradients have the sizes B×H×T, keys and values
  // B×G×S. `width` is the number of elements of a row, which is dense.
  int64_t ofQueries(DenseI64ArrayAttr strides, int64_t width) const {
    return extent(query.take_front(3), strides, width) *
           elementBytes(plan.getElement());
  }
  int64_t ofKeys(DenseI64ArrayAttr strides, int64_t width) const {
    return extent(key.take_front(3), strides, width) *
           elementBytes(plan.getElement());
  }
  // The logarithm of the sum of exponentials of each row, in f32.
  int64_t lse() const { return query[0] * query[1] * query[2] * 4; }
  // A mask may broadcast, with strides of 0, so its extent follows from the
  // sizes of the scores.
  int64_t mask() const {
    if (!plan.getMask())
      return 0;
    int64_t sizes[] = {query[0], query[1], query[2], key[2]};
    return extent(sizes, plan.getStrideMask(), 1) *
           elementBytes(plan.getMask());
  }
  int64_t width() const { return query[3]; }

  rt::AttentionPlanAttr plan;
  ArrayRef<int64_t> query, key;
};

// The operands are query, key, value, an optional mask, the output and the
// statistics, which come last. Counting from the end makes the mask's presence
// irrelevant.
int64_t bytesOf(rt::AttentionOp op, unsigned index) {
  AttentionReach reach(op.getPlan());
  rt::AttentionPlanAttr plan = op.getPlan();
  int64_t ofInputs[] = {
      reach.ofQueries(plan.getStrideQuery(), reach.width()),
      reach.ofKeys(plan.getStrideKey(), reach.width()),
      reach.ofKeys(plan.getStrideValue(), plan.getValueWidth())};
  if (index < 3)
    return ofInputs[index];
  unsigned last = op->getNumOperands() - 1;
  return index == last ? reach.lse()
         : index + 1 == last
             ? reach.ofQueries(plan.getStrideOutput(), plan.getValueWidth())
             : reach.mask();
}

// As for the forward: the mask is the only optional operand, and lies between
// the six inputs and the three results.
int64_t bytesOf(rt::AttentionGradOp op, unsigned index) {
  AttentionReach reach(op.getPlan());
  rt::AttentionPlanAttr plan = op.getPlan();
  int64_t width = reach.width(), valueWidth = plan.getValueWidth();
  int64_t ofInputs[] = {reach.ofQueries(plan.getStrideGrad(), valueWidth),
                        reach.ofQueries(plan.getStrideQuery(), width),
                        reach.ofKeys(plan.getStrideKey(), width),
                        reach.ofKeys(plan.getStrideValue(), valueWidth),
                        reach.ofQueries(plan.getStrideOutput(), valueWidth),
                        reach.lse()};
  if (index < 6)
    return ofInputs[index];
  int64_t ofResults[] = {reach.ofKeys(plan.getStrideDValue(), valueWidth),
                         reach.ofKeys(plan.getStrideDKey(), width),
                         reach.ofQueries(plan.getStrideDQuery(), width)};
  unsigned fromEnd = op->getNumOperands() - 1 - index;
  return fromEnd < 3 ? ofResults[fromEnd] : reach.mask();
}

// ---- calls on symbols ----

// A flat buffer of the layout, in its compute type. 0 if the module lacks the
// layout.
int64_t flatBytes(Attribute name, const SymbolTable &symbols) {
  auto layout =
      symbols.lookup<fsdp::LayoutOp>(cast<FlatSymbolRefAttr>(name).getAttr());
  return layout ? static_cast<int64_t>(layout.getElements()) *
                      elementBytes(layout.getCompute())
                : 0;
}

// The buffers of a launch are the kernel's arguments, then its results. Any
// further buffer is not the kernel's, and 0 leaves it to the pointer.
int64_t bytesOf(rt::LaunchOp op, unsigned index, const SymbolTable &symbols) {
  auto kernel = symbols.lookup<func::FuncOp>(op.getKernelAttr().getAttr());
  unsigned inputs = kernel.getNumArguments();
  if (index >= inputs + kernel.getNumResults())
    return 0;
  return tensorBytes(index < inputs ? kernel.getArgumentTypes()[index]
                                    : kernel.getResultTypes()[index - inputs]);
}

// The digits of each sum of each member. 0 if the op takes no sums.
template <typename UpdateOp>
int64_t memberSumBytes(UpdateOp op, const SymbolTable &symbols) {
  int64_t members = 0;
  for (FlatSymbolRefAttr name : op.getLayoutRefs())
    if (auto layout = symbols.lookup<fsdp::LayoutOp>(name.getAttr()))
      members += layout.getMembers().size();
  return members * op.getPerMember() * normDigits * int64_t(sizeof(double));
}

// One f64 per row and column of each member of the layouts, or with `number`
// those from which they follow.
template <typename UpdateOp>
int64_t factorBytes(UpdateOp op, const SymbolTable &symbols,
                    int64_t (*number)(fsdp::LayoutOp,
                                      const SymbolTable &) = fsdp::factorsOf) {
  int64_t count = 0;
  for (FlatSymbolRefAttr name : op.getLayoutRefs())
    if (auto layout = symbols.lookup<fsdp::LayoutOp>(name.getAttr()))
      count += number(layout, symbols);
  return count * int64_t(sizeof(double));
}

// One f32 per element of the layout's members, or as many as
// fsdp.orthogonalize needs.
template <typename UpdateOp>
int64_t matrixBytes(UpdateOp op, const SymbolTable &symbols,
                    bool withRoom = false) {
  auto layout = symbols.lookup<fsdp::LayoutOp>(op.getLayoutAttr().getAttr());
  if (!layout)
    return 0;
  int64_t elements = withRoom ? fsdp::orthogonalElementsOf(layout)
                              : fsdp::memberElementsOf(layout);
  return elements * int64_t(sizeof(float));
}

// The gradient of a layout in f32, with the padding of all shards.
int64_t wholeGradientBytes(Operation *op, FlatSymbolRefAttr name,
                           const SymbolTable &symbols) {
  auto layout = symbols.lookup<fsdp::LayoutOp>(name.getAttr());
  if (!layout)
    return 0;
  auto module = op->getParentOfType<ModuleOp>();
  return fsdp::wholeGradientElementsOf(layout,
                                       fsdp::CompileOptions::of(module)) *
         int64_t(sizeof(float));
}

int64_t bufferBytes(rt::UpdateStatisticsOp op, const SymbolTable &symbols) {
  auto buffer = symbols.lookup<fsdp::BufferOp>(op.getBufferAttr().getAttr());
  return buffer ? tensorBytes(buffer.getType()) : 0;
}

} // namespace

// The scalars of the update are f32 (scale, loss), the sums of squares f64,
// normDigits per layout.
int64_t fsdpc::passes::reachOf(OpOperand &operand, const SymbolTable &symbols) {
  unsigned index = operand.getOperandNumber();
  // In bytes.
  constexpr int64_t scalar = 4, sum = 8 * normDigits;
  return TypeSwitch<Operation *, int64_t>(operand.getOwner())
      .Case<rt::MatmulOp, rt::ConvolutionOp, rt::PoolingOp, rt::AttentionOp,
            rt::AttentionGradOp>([&](auto op) { return bytesOf(op, index); })
      .Case([&](rt::LaunchOp op) { return bytesOf(op, index, symbols); })
      .Case<rt::AllGatherOp, rt::KeepSecondaryOp, rt::GatherSecondaryOp,
            rt::ReduceScatterOp>([&](auto op) {
        return index < op.getLayouts().size()
                   ? flatBytes(op.getLayouts()[index], symbols)
                   : 0;
      })
      .Case([&](rt::AccumulateOp op) {
        return flatBytes(op.getLayoutAttr(), symbols);
      })
      .Case([&](rt::UpdateStatisticsOp op) { return bufferBytes(op, symbols); })
      .Case([&](rt::SumSquaresOp op) {
        return sum * static_cast<int64_t>(op.getLayouts().size());
      })
      .Case([&](rt::AllReduceOp op) {
        return 8 * static_cast<int64_t>(op.getCount());
      })
      .Case([&](rt::ClipOp op) {
        return index ? scalar
                     : sum * static_cast<int64_t>(op.getLayouts().size());
      })
      .Case<rt::PoisonOp, rt::OffloadOp, rt::FetchOp>(
          [&](auto op) { return static_cast<int64_t>(op.getBytes()); })
      .Case([&](rt::OptimizerOp op) {
        if (operand.get() == op.getFactors())
          return factorBytes(op, symbols);
        if (operand.get() == op.getUpdates())
          return matrixBytes(op, symbols);
        if (operand.get() == op.getGradient())
          return wholeGradientBytes(op, op.getLayoutAttr(), symbols);
        return index ? memberSumBytes(op, symbols) : scalar;
      })
      .Case([&](rt::WholeGradientOp op) {
        return wholeGradientBytes(op, op.getLayoutAttr(), symbols);
      })
      .Case([&](rt::MemberSumsOp op) {
        if (operand.get() == op.getFactors())
          return factorBytes(op, symbols);
        return index ? memberSumBytes(op, symbols) : scalar;
      })
      .Case([&](rt::MomentumUpdatesOp op) {
        return index ? matrixBytes(op, symbols) : scalar;
      })
      .Case([&](rt::MoveMatricesOp op) { return matrixBytes(op, symbols); })
      // Operand 1 is the result, with room for the matrices of the steps.
      .Case([&](rt::OrthogonalizeOp op) {
        return matrixBytes(op, symbols, index);
      })
      .Case([&](rt::FactorSumsOp op) {
        return index ? factorBytes(op, symbols, fsdp::factorSumsOf) : scalar;
      })
      .Case([&](rt::UpdateFactorsOp op) {
        return factorBytes(op, symbols,
                           index ? fsdp::factorsOf : fsdp::factorSumsOf);
      })
      .Case<rt::ReportLossOp, rt::ReportZeroedOp>([&](auto) { return scalar; })
      .Case([&](rt::ReportOutputOp op) {
        return tensorBytes(op.getPlan().getType());
      })
      // Ops without addresses.
      .Default([](Operation *) { return int64_t(0); });
}
