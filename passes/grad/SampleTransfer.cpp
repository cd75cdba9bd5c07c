// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An op keeps samples apart if it computes element by element, moves whole
// samples, or reduces other axes than theirs. Where it is linear, its results
// are sums over samples. Whatever is not known to be either counts as an op
// that mixes samples.
#include "passes/grad/SampleTransfer.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/Linearity.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace fsdpc::passes {
namespace {

SampleState constant() { return {}; }

// Returns how many elements a chain of sums adds up for each of its own.
int64_t summedElements(Value sum) {
  int64_t elements = 1;
  while (Operation *op = sum.getDefiningOp()) {
    auto reduce = dyn_cast<nn::ReduceOp>(op);
    if (reduce && reduce.getKind() == nn::ReduceKind::sum)
      for (int64_t axis : reduce.getAxes())
        elements *= nn::shapeOf(reduce.getInput())[axis];
    else if (!isa<nn::ReshapeOp>(op) && !nn::keepsValue(op))
      break;
    sum = op->getOperand(0);
  }
  return elements;
}

// Derives the state of an op's results from those of its operands.
class Transfer {
public:
  Transfer(Operation &op, ArrayRef<SampleState> operands)
      : op(op), operands(operands) {}

  SampleState state() const;

private:
  SampleState combined(Samples kind) const;
  SampleState ofTerms() const;
  SampleState ofElements() const;
  SampleState ofReduce(nn::ReduceOp reduce) const;
  SampleState ofReshape() const;
  SampleState ofMoves(nn::ElementSourceOpInterface moves) const;
  SampleState ofLookup(const nn::ElementSource &source) const;
  SampleState ofDomain(nn::FusibleOpInterface fusible) const;
  SampleState ofCall(nn::LibraryCallOpInterface call) const;
  std::optional<SampleState> moved(AffineMap map, unsigned operand) const;

  Operation &op;
  ArrayRef<SampleState> operands;
};

// A sum or a mixture: this op is its source unless an operand has one already.
SampleState Transfer::combined(Samples kind) const {
  SampleState state;
  state.kind = kind;
  for (const SampleState &operand : operands)
    if (operand.source) {
      state.source = operand.source;
      return state;
    }
  state.source = &op;
  return state;
}

SampleState Transfer::ofElements() const {
  SampleState rows = constant();
  bool isApart = true;
  for (const SampleState &operand : operands) {
    isApart &= !operand.combines();
    if (operand.kind != Samples::Rows)
      continue;
    isApart &= rows.kind == Samples::None || rows.hasRows(operand);
    if (rows.axis < 0)
      rows = operand;
  }
  if (isApart)
    return rows;
  // The number of all places minus a sum over them is a sum too: that of the
  // places without the padded ones.
  bool isRest = isa<nn::SubOp>(op) && operands[1].kind == Samples::Sum &&
                nn::matchSplat(op.getOperand(0)) ==
                    double(summedElements(op.getOperand(1)));
  return isRest ? combined(Samples::Sum) : ofTerms();
}

// The results of an op that does not keep samples apart: sums if it is linear.
SampleState Transfer::ofTerms() const {
  bool isMixed = llvm::any_of(operands, [](const SampleState &state) {
    return state.kind == Samples::Mixed;
  });
  auto isVariable = [&](OpOperand &operand) {
    return operands[operand.getOperandNumber()].kind != Samples::None;
  };
  return combined(!isMixed && nn::isLinearIn(&op, isVariable) ? Samples::Sum
                                                              : Samples::Mixed);
}

SampleState Transfer::ofReduce(nn::ReduceOp reduce) const {
  const SampleState &from = operands[0];
  if (from.kind == Samples::Rows &&
      !llvm::is_contained(reduce.getAxes(), from.axis))
    return from;
  return ofTerms();
}

// Elements keep their row-major place, so the sample of an element is
// (place / width) % count under each shape.
SampleState Transfer::ofReshape() const {
  SampleState state = operands[0];
  if (state.kind != Samples::Rows || state.axis < 0)
    return state;
  ArrayRef<int64_t> from = nn::shapeOf(op.getOperand(0)),
                    to = nn::shapeOf(op.getResult(0));
  int64_t width = state.inner;
  for (int64_t size : from.drop_front(state.axis + 1))
    width *= size;
  int64_t after = 1;
  for (int64_t size : to)
    after *= size;
  for (auto [axis, size] : llvm::enumerate(to)) {
    after /= size;
    if (width % after != 0 || size % (width / after * state.count) != 0)
      continue;
    state.axis = int64_t(axis);
    state.inner = width / after;
    return state;
  }
  if (!to.empty())
    return combined(Samples::Sum);
  state.axis = -1;
  state.inner = 0;
  return state;
}

// Returns the state of what a map takes from the operand: all samples in order,
// or one of them; or nothing.
std::optional<SampleState> Transfer::moved(AffineMap map,
                                           unsigned operand) const {
  SampleState state = operands[operand];
  if (state.axis < 0)
    return state;
  AffineExpr along = map.getResult(state.axis);
  ArrayRef<int64_t> to = nn::shapeOf(op.getResult(0));
  auto dim = dyn_cast<AffineDimExpr>(along);
  if (dim && to[dim.getPosition()] ==
                 nn::shapeOf(op.getOperand(operand))[state.axis]) {
    state.axis = int64_t(dim.getPosition());
    return state;
  }
  // The expressions are monotonic in each index.
  SmallVector<AffineExpr> first, last;
  for (int64_t size : to) {
    first.push_back(getAffineConstantExpr(0, op.getContext()));
    last.push_back(getAffineConstantExpr(size - 1, op.getContext()));
  }
  auto sampleAt = [&](ArrayRef<AffineExpr> index) -> std::optional<int64_t> {
    auto place = dyn_cast<AffineConstantExpr>(along.replaceDims(index));
    if (!place)
      return std::nullopt;
    return place.getValue() / state.inner;
  };
  std::optional<int64_t> sample = sampleAt(first);
  if (!sample || sample != sampleAt(last))
    return std::nullopt;
  state.axis = -1;
  state.inner = *sample % state.count;
  return state;
}

// Elements that are moved otherwise than with their samples are still sums of
// one term.
SampleState Transfer::ofMoves(nn::ElementSourceOpInterface moves) const {
  SampleState all = constant();
  bool isApart = true;
  auto join = [&](unsigned operand, AffineMap map) {
    if (operands[operand].kind != Samples::Rows)
      return;
    std::optional<SampleState> part = moved(map, operand);
    isApart &= part && (all.kind == Samples::None || all.hasRows(*part));
    if (part)
      all = *part;
  };
  for (const nn::ElementSource &source : moves.getElementSources()) {
    const SampleState &state = operands[source.operand];
    if (!source.map)
      return ofReshape();
    isApart &=
        !state.combines() &&
        !(source.dynamic && operands[source.dynamic->operand].combines());
    // Rows of a table that samples have made may be those of another sample.
    if (source.dynamic && state.kind == Samples::Rows && state.axis <= 0)
      return ofLookup(source);
    join(source.operand, source.map);
    if (source.dynamic)
      join(source.dynamic->operand, source.dynamic->map);
  }
  return isApart ? all : ofTerms();
}

// Constant indices may pick the rows of each sample for the result's own.
SampleState Transfer::ofLookup(const nn::ElementSource &source) const {
  SampleState state = operands[source.operand];
  Value indices = op.getOperand(source.dynamic->operand);
  DenseIntElementsAttr ids;
  if (state.axis < 0 || !matchPattern(indices, m_Constant(&ids)))
    return ofTerms();
  ArrayRef<int64_t> shape = nn::shapeOf(indices);
  int64_t size = ids.getNumElements(), inside = size;
  for (auto [axis, extent] : llvm::enumerate(shape)) {
    inside /= extent;
    int64_t inner = extent / state.count;
    if (extent % state.count != 0)
      continue;
    auto fits = [&](auto each) {
      int64_t own = int64_t(each.index()) / inside % extent / inner;
      int64_t id = each.value().getSExtValue();
      id += id < 0 ? source.dynamic->size : 0;
      return id / state.inner % state.count == own;
    };
    if (!llvm::all_of(llvm::enumerate(ids.getValues<APInt>()), fits))
      continue;
    state.axis = int64_t(axis);
    state.inner = inner;
    return state;
  }
  return ofTerms();
}

// An op that reduces some axes keeps the others apart.
SampleState Transfer::ofDomain(nn::FusibleOpInterface fusible) const {
  nn::Domain domain = fusible.getDomain();
  SampleState rows = constant();
  for (auto [state, value] : llvm::zip_equal(operands, op.getOperands())) {
    if (state.kind == Samples::None)
      continue;
    ArrayRef<int64_t> shape = nn::shapeOf(value);
    bool isApart = state.kind == Samples::Rows &&
                   shape.size() == domain.shape.size() && state.axis >= 0 &&
                   shape[state.axis] == domain.shape[state.axis] &&
                   !llvm::is_contained(domain.axes, state.axis) &&
                   (rows.kind == Samples::None || rows.hasRows(state));
    if (!isApart)
      return combined(Samples::Mixed);
    rows = state;
  }
  for (Value result : op.getResults())
    if (rows.kind == Samples::Rows &&
        (nn::shapeOf(result).size() != domain.shape.size() ||
         nn::shapeOf(result)[rows.axis] != domain.shape[rows.axis]))
      return combined(Samples::Mixed);
  return rows;
}

// Products and windows keep samples apart along the axes that they do not sum.
SampleState Transfer::ofCall(nn::LibraryCallOpInterface call) const {
  SampleState rows = constant();
  bool isApart = true;
  for (auto [number, state] : llvm::enumerate(operands)) {
    if (state.kind == Samples::None)
      continue;
    std::optional<int64_t> axis;
    if (state.kind == Samples::Rows && state.axis >= 0)
      axis = call.getResultAxis(number, state.axis);
    SampleState part = state;
    part.axis = axis.value_or(-1);
    isApart &= axis && (rows.kind == Samples::None || rows.hasRows(part));
    rows = part;
  }
  return isApart ? rows : ofTerms();
}

SampleState Transfer::state() const {
  if (llvm::all_of(operands, [](const SampleState &state) {
        return state.kind == Samples::None;
      }))
    return constant();
  auto isEmpty = [](Value value) {
    return nn::tensorType(value).getNumElements() == 0;
  };
  if (llvm::any_of(op.getOperands(), isEmpty) ||
      llvm::any_of(op.getResults(), isEmpty))
    return combined(Samples::Mixed);
  if (auto reduce = dyn_cast<nn::ReduceOp>(op))
    return ofReduce(reduce);
  if (isa<nn::ElementwiseOpInterface>(op))
    return ofElements();
  if (auto moves = dyn_cast<nn::ElementSourceOpInterface>(op))
    return ofMoves(moves);
  if (auto fusible = dyn_cast<nn::FusibleOpInterface>(op);
      fusible && fusible.getFusionKind() == nn::FusionKind::Reduction)
    return ofDomain(fusible);
  if (auto call = dyn_cast<nn::LibraryCallOpInterface>(op))
    return ofCall(call);
  return combined(Samples::Mixed);
}

} // namespace

SampleState transferSamples(Operation &op, ArrayRef<SampleState> operands) {
  return Transfer(op, operands).state();
}

} // namespace fsdpc::passes
