// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One forward scan. An op keeps samples apart if it computes element by
// element, moves whole samples, or reduces other axes than theirs; whatever is
// not known to do so counts as an op that combines them.
#include "passes/grad/SampleFlow.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;

namespace fsdpc::passes {
namespace {

SampleState constant() { return {}; }

// Derives the state of an op's results from those of its operands.
class Transfer {
public:
  Transfer(Operation &op, ArrayRef<SampleState> operands)
      : op(op), operands(operands) {}

  SampleState state() const;

private:
  SampleState combined(Samples kind) const;
  SampleState ofElements() const;
  SampleState ofReduce(nn::ReduceOp reduce) const;
  SampleState ofReshape() const;
  SampleState ofMoves(nn::ElementSourceOpInterface moves) const;
  SampleState ofLookup(const nn::ElementSource &source) const;
  SampleState ofDomain(nn::FusibleOpInterface fusible) const;
  SampleState ofCall() const;
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
  unsigned sums = 0;
  for (const SampleState &operand : operands) {
    if (operand.kind == Samples::Mixed)
      return combined(Samples::Mixed);
    sums += operand.kind == Samples::Sum;
    if (operand.kind != Samples::Rows)
      continue;
    if (rows.kind == Samples::Rows && !rows.hasRows(operand))
      return combined(Samples::Mixed);
    if (rows.axis < 0)
      rows = operand;
  }
  if (sums == 0)
    return rows;
  // A sum stays one under what is linear.
  bool addsSums = isa<nn::AddOp, nn::SubOp>(op) && sums == 2;
  bool isFloat =
      isa<FloatType>(nn::tensorType(op.getResult(0)).getElementType());
  bool scales = isa<nn::MulOp>(op) || (isa<nn::DivOp>(op) && isFloat &&
                                       operands[0].kind == Samples::Sum);
  bool isLinear = isa<nn::NegOp>(op) ||
                  isa<nn::CopyOp, nn::StopGradientOp>(op) || addsSums ||
                  (scales && sums == 1);
  if (isa<nn::CastOp>(op))
    isLinear = keepsDigits(&op);
  return combined(isLinear && rows.kind == Samples::None ? Samples::Sum
                                                         : Samples::Mixed);
}

SampleState Transfer::ofReduce(nn::ReduceOp reduce) const {
  const SampleState &from = operands[0];
  bool isSum = reduce.getKind() == nn::ReduceKind::sum;
  if (from.kind == Samples::Rows &&
      !llvm::is_contained(reduce.getAxes(), from.axis))
    return from;
  return combined(isSum && from.kind != Samples::Mixed ? Samples::Sum
                                                       : Samples::Mixed);
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
    return combined(Samples::Mixed);
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

SampleState Transfer::ofMoves(nn::ElementSourceOpInterface moves) const {
  SmallVector<nn::ElementSource, 1> sources = moves.getElementSources();
  SampleState all = constant();
  bool hasSums = false, hasOthers = false;
  auto join = [&](unsigned operand, AffineMap map) {
    const SampleState &state = operands[operand];
    hasSums |= state.kind == Samples::Sum;
    hasOthers |= state.kind == Samples::None;
    if (state.kind == Samples::Mixed)
      return false;
    if (state.kind != Samples::Rows)
      return true;
    std::optional<SampleState> part = moved(map, operand);
    bool fits = part && (all.kind == Samples::None || all.hasRows(*part));
    if (fits)
      all = *part;
    return fits;
  };
  for (const nn::ElementSource &source : sources) {
    if (!source.map)
      return ofReshape();
    bool picks = source.dynamic.has_value();
    // Rows of a table that samples have made may be those of another sample.
    if (picks && operands[source.operand].kind == Samples::Rows &&
        operands[source.operand].axis <= 0)
      return ofLookup(source);
    if (!join(source.operand, source.map) ||
        (picks && !join(source.dynamic->operand, source.dynamic->map)))
      return combined(Samples::Mixed);
  }
  bool isDynamic = llvm::any_of(sources, [](const nn::ElementSource &source) {
    return source.dynamic.has_value();
  });
  if (!hasSums)
    return all;
  bool isSum = all.kind == Samples::None && (!hasOthers || isDynamic);
  return combined(isSum ? Samples::Sum : Samples::Mixed);
}

// Constant indices may pick the rows of each sample for the result's own.
SampleState Transfer::ofLookup(const nn::ElementSource &source) const {
  SampleState state = operands[source.operand];
  Value indices = op.getOperand(source.dynamic->operand);
  DenseIntElementsAttr ids;
  if (state.axis < 0 || !matchPattern(indices, m_Constant(&ids)))
    return combined(Samples::Mixed);
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
  return combined(Samples::Mixed);
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

// Products of batches and windows keep the first axis of their first operand.
SampleState Transfer::ofCall() const {
  const SampleState &first = operands[0];
  ArrayRef<int64_t> from = nn::shapeOf(op.getOperand(0)),
                    to = nn::shapeOf(op.getResult(0));
  bool isApart = first.kind == Samples::Rows && first.axis == 0 &&
                 from.size() > 2 && to.size() == from.size() &&
                 from[0] == to[0];
  for (const SampleState &state : operands.drop_front())
    isApart &= state.kind == Samples::None;
  return isApart ? first : combined(Samples::Mixed);
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
  if (isa<nn::LibraryCallOpInterface>(op))
    return ofCall();
  return combined(Samples::Mixed);
}

} // namespace

bool keepsDigits(Operation *cast) {
  Type from = nn::tensorType(cast->getOperand(0)).getElementType();
  Type to = nn::tensorType(cast->getResult(0)).getElementType();
  return isa<FloatType>(to) || (!isa<FloatType>(from) && !to.isInteger(1));
}

SampleFlow::SampleFlow(Block &body, const Uses &ignored) {
  for (BlockArgument argument : body.getArguments()) {
    ArrayRef<int64_t> shape = nn::shapeOf(argument);
    if (shape.empty())
      continue;
    inputs.insert(argument);
    SampleState &state = states[argument];
    state.kind = Samples::Rows;
    state.axis = 0;
    state.count = shape[0];
  }
  for (Operation &op : body)
    visit(op, ignored);
}

void SampleFlow::visit(Operation &op, const Uses &ignored) {
  bool reads = false, readsMore = op.getNumOperands() == 0 &&
                                  !isa<nn::ConstantOp, nn::IotaOp>(op);
  SmallVector<SampleState> operands;
  for (OpOperand &operand : op.getOpOperands()) {
    reads |= readsInputs(operand.get());
    readsMore |= readsOthers(operand.get());
    operands.push_back(ignored.contains(&operand) ? constant()
                                                  : of(operand.get()));
  }
  SampleState state;
  if (!readsMore && !operands.empty() && op.getNumResults() > 0)
    state = Transfer(op, operands).state();
  for (Value result : op.getResults()) {
    if (reads)
      inputs.insert(result);
    if (readsMore)
      others.insert(result);
    else if (state.kind != Samples::None)
      states[result] = state;
  }
  if (!readsMore && op.getNumResults() == 1)
    findLeader(op);
}

// The model may write one count several times.
void SampleFlow::findLeader(Operation &op) {
  constexpr auto flags =
      OperationEquivalence::Flags(OperationEquivalence::IgnoreLocations |
                                  OperationEquivalence::IgnoreDiscardableAttrs);
  size_t hash = OperationEquivalence::computeHash(
      &op, [&](Value value) { return hash_value(firstOf(value)); },
      OperationEquivalence::ignoreHashValue, flags);
  SmallVector<Operation *, 1> &known = byHash[hash];
  for (Operation *first : known)
    if (OperationEquivalence::isEquivalentTo(
            first, &op,
            [&](Value one, Value other) {
              return success(firstOf(one) == firstOf(other));
            },
            nullptr, flags)) {
      leaders[op.getResult(0)] = first->getResult(0);
      return;
    }
  known.push_back(&op);
}

} // namespace fsdpc::passes
