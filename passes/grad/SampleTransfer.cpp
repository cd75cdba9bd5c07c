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
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace fsdpc::passes {
namespace {

SampleState constant() { return {}; }

// Derives the state of an op's results from those of its operands.
class Transfer {
public:
  Transfer(Operation &op, ArrayRef<SampleState> operands, bool ofModel)
      : op(op), operands(operands), ofModel(ofModel) {}

  SampleState ofOp() const;

private:
  SampleState combined(Samples kind) const;
  Samples joined(Samples kind, Samples other) const;
  SampleState ofTerms() const;
  SampleState scaled(SampleState state) const;
  SampleState ofElements() const;
  SampleState ofReduce(nn::ReduceOp reduce) const;
  SampleState ofReshape() const;
  SampleState ofMoves(nn::ElementSourceOpInterface moves) const;
  SampleState ofLookup(const nn::ElementSource &source) const;
  SampleState ofDomain(nn::FusibleOpInterface fusible) const;
  SampleState ofCall(nn::LibraryCallOpInterface call) const;
  SampleState ofEntropy(nn::Reduction reduction, bool countsTargets) const;
  std::optional<SampleState> moved(AffineMap map, unsigned operand) const;

  Operation &op;
  ArrayRef<SampleState> operands;
  bool ofModel;
};

// This op combines samples, unless an operand has done so already.
SampleState Transfer::combined(Samples kind) const {
  SampleState state;
  state.kind = kind;
  for (const SampleState &operand : operands)
    if (operand.source) {
      state.source = operand.source;
      state.terms = operand.terms;
      state.ownTerms = operand.ownTerms;
      return state;
    }
  state.source = &op;
  return state;
}

// Rows whose places are not known.
static SampleState movedRows() {
  SampleState state;
  state.kind = Samples::Rows;
  state.count = 0;
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
    return scaled(rows);
  // The number of all places minus a sum over them is a sum too: that of the
  // places without the padded ones.
  bool isRest = isa<nn::SubOp>(op) && operands[1].kind == Samples::Sum &&
                nn::matchSplat(op.getOperand(0)) == double(operands[1].terms);
  return isRest ? combined(Samples::Sum) : scaled(ofTerms());
}

// A sum over the number of its terms is a mean, and a mean times that number a
// sum. Any other factor is a constant.
SampleState Transfer::scaled(SampleState state) const {
  auto counts = [&](unsigned place) {
    std::optional<double> number = nn::matchSplat(op.getOperand(place));
    return number && state.countsTerms(*number);
  };
  if (isa<nn::DivOp>(op) && counts(1)) {
    if (state.kind == Samples::Sum)
      state.kind = Samples::Mean;
    else if (state.kind == Samples::Rows)
      state.terms = 1;
  } else if (isa<nn::MulOp>(op) && state.kind == Samples::Mean &&
             (counts(0) || counts(1))) {
    state.kind = Samples::Sum;
  }
  return state;
}

// Running sums of inputs add rows to rows of other samples. In values that read
// parameters, a sum is not a row.
Samples Transfer::joined(Samples kind, Samples other) const {
  if (kind == Samples::None || kind == other)
    return other;
  if (other == Samples::None)
    return kind;
  bool isSum = (kind == Samples::Rows && other == Samples::Sum) ||
               (kind == Samples::Sum && other == Samples::Rows);
  return isSum && !ofModel ? Samples::Sum : Samples::Mixed;
}

// The results of an op that does not keep samples apart: sums if it is linear.
// A mean of terms with a constant each is a mean as well.
SampleState Transfer::ofTerms() const {
  Samples kind = Samples::None;
  for (const SampleState &state : operands)
    kind = joined(kind, state.kind);
  auto isVariable = [&](OpOperand &operand) {
    return operands[operand.getOperandNumber()].kind != Samples::None;
  };
  auto isZero = [&](OpOperand &operand) {
    return kind == Samples::Mean || operands[operand.getOperandNumber()].isZero;
  };
  if (kind == Samples::Mixed || !nn::isLinearIn(&op, isVariable, isZero))
    return combined(Samples::Mixed);
  return combined(kind == Samples::Rows ? Samples::Sum : kind);
}

SampleState Transfer::ofReduce(nn::ReduceOp reduce) const {
  SampleState from = operands[0];
  bool isRows = from.kind == Samples::Rows;
  int64_t terms = 1;
  if (reduce.getKind() == nn::ReduceKind::sum)
    for (int64_t axis : reduce.getAxes())
      terms *= nn::shapeOf(reduce.getInput())[axis];
  from.terms *= terms;
  bool isApart = from.count == 0
                     ? nn::tensorType(reduce.getResult()).getNumElements() > 1
                     : !llvm::is_contained(reduce.getAxes(), from.axis);
  if (isRows && isApart)
    return from;
  SampleState state = ofTerms();
  state.terms = from.terms;
  state.ownTerms = isRows ? terms : from.ownTerms;
  return state;
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
    return ofModel ? movedRows() : combined(Samples::Sum);
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

// An element that is moved away from its sample's place is still a sum of one
// term.
SampleState Transfer::ofMoves(nn::ElementSourceOpInterface moves) const {
  SampleState all = constant();
  bool isApart = true, movesSums = false;
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
    movesSums |= state.combines();
    join(source.operand, source.map);
    if (source.dynamic)
      join(source.dynamic->operand, source.dynamic->map);
  }
  if (isApart)
    return all;
  return ofModel && !movesSums ? movedRows() : ofTerms();
}

// Constant indices may pick the rows of each sample for the result's own.
SampleState Transfer::ofLookup(const nn::ElementSource &source) const {
  SampleState state = operands[source.operand];
  Value indices = op.getOperand(source.dynamic->operand);
  DenseIntElementsAttr ids;
  if (state.axis < 0 || !matchPattern(indices, m_Constant(&ids)))
    return ofModel ? movedRows() : ofTerms();
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
  return ofModel ? movedRows() : ofTerms();
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
  bool isApart = true, isMoved = false;
  for (auto [number, state] : llvm::enumerate(operands)) {
    if (state.kind == Samples::None)
      continue;
    isMoved |= state.kind == Samples::Rows && state.count == 0;
    std::optional<int64_t> axis;
    if (state.kind == Samples::Rows && state.axis >= 0)
      axis = call.getResultAxis(number, state.axis);
    SampleState part = state;
    part.axis = axis.value_or(-1);
    isApart &= axis && (rows.kind == Samples::None || rows.hasRows(part));
    rows = part;
  }
  if (isApart)
    return rows;
  // The product of two vectors sums over samples as a reduction does.
  auto isFactor = [](OpOperand &operand) {
    return nn::linearityIn(operand) == nn::Linearity::Factor;
  };
  if (operands.size() == 2 && llvm::all_of(op.getOpOperands(), isFactor) &&
      nn::tensorType(op.getResult(0)).getNumElements() == 1) {
    SampleState other = operands[1];
    other.axis = operands[0].axis;
    if (operands[0].hasRows(other))
      return combined(Samples::Sum);
  }
  bool combines = llvm::any_of(
      operands, [](const SampleState &state) { return state.combines(); });
  return isMoved && !combines ? movedRows() : ofTerms();
}

// The mean over the targets that count is not a sum over samples.
SampleState Transfer::ofEntropy(nn::Reduction reduction,
                                bool countsTargets) const {
  if (reduction == nn::Reduction::sum)
    return combined(Samples::Sum);
  SampleState state = combined(countsTargets ? Samples::Mixed : Samples::Mean);
  state.terms = state.ownTerms = nn::shapeOf(op.getOperand(0))[0];
  return state;
}

SampleState Transfer::ofOp() const {
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
  auto fusible = dyn_cast<nn::FusibleOpInterface>(op);
  if (isa<nn::ElementwiseOpInterface>(op) ||
      (fusible && fusible.getFusionKind() == nn::FusionKind::Map))
    return ofElements();
  if (auto moves = dyn_cast<nn::ElementSourceOpInterface>(op))
    return ofMoves(moves);
  auto ofLoss = [&](auto entropy) {
    return ofEntropy(entropy.getReduction(),
                     entropy.getIgnoreIndex() || entropy.getWeights());
  };
  if (auto entropy = dyn_cast<nn::CrossEntropyOp>(op))
    return ofLoss(entropy);
  if (auto entropy = dyn_cast<nn::LinearCrossEntropyOp>(op))
    return ofLoss(entropy);
  SampleState state = combined(Samples::Mixed);
  if (auto call = dyn_cast<nn::LibraryCallOpInterface>(op))
    state = ofCall(call);
  else if (fusible && fusible.getFusionKind() == nn::FusionKind::Reduction)
    state = ofDomain(fusible);
  return ofModel && state.kind == Samples::Mixed ? movedRows() : state;
}

} // namespace

SampleState transferSamples(Operation &op, ArrayRef<SampleState> operands,
                            bool ofModel) {
  return Transfer(op, operands, ofModel).ofOp();
}

} // namespace fsdpc::passes
