// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes strides through ops that only move elements, from the operand to the
// result and back. A reshape is possible if each run of axes that it merges or
// splits is dense in itself; otherwise strides cannot express the result.
#include "compiler/dialects/nn/Strided.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"

using namespace mlir;

namespace fsdpc::nn {

bool isStrided(Operation *op) { return op->hasAttr(kStridedAttr); }

// Stride 0 for axes of size 1 makes strides comparable: the stride of such an
// axis is never used, and a reshape may insert it anywhere.
Strides denseStrides(ArrayRef<int64_t> shape) {
  Strides result;
  result.strides.resize(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0; stride *= shape[i])
    result.strides[i] = shape[i] == 1 ? 0 : stride;
  return result;
}

// Returns the strides of a row-major reshape, or nullopt if there are none.
// Matches runs of axes that hold the same elements, starting from the last
// axis: both sides grow until their products are equal. The axes of `from`
// within a run must be dense among themselves; those of `to` then are, too.
// Linear in the number of axes.
static std::optional<Strides>
reshaped(ArrayRef<int64_t> from, const Strides &strides, ArrayRef<int64_t> to) {
  Strides result;
  result.offset = strides.offset;
  result.strides.assign(to.size(), 0);
  size_t i = from.size(), j = to.size();
  while (true) {
    // Axes of size 1 take no part in runs.
    while (i > 0 && from[i - 1] == 1)
      --i;
    while (j > 0 && to[j - 1] == 1)
      --j;
    if (i == 0 || j == 0)
      return i == j ? std::optional(result) : std::nullopt;
    // A run begins: its innermost stride holds for all of it. `read` and
    // `written` are the elements covered so far on each side.
    int64_t stride = strides.strides[i - 1], read = from[i - 1], next = stride;
    int64_t written = 1;
    do {
      result.strides[j - 1] = to[j - 1] == 1 ? 0 : next;
      written *= to[j - 1];
      next *= to[--j];
      while (read < written) {
        do
          --i;
        while (i > 0 && from[i - 1] == 1);
        if (i == 0 || strides.strides[i - 1] != read * stride)
          return std::nullopt;
        read *= from[i - 1];
      }
    } while (written < read && j > 0);
    // The axes of `to` are used up within a run.
    if (written != read)
      return std::nullopt;
    --i;
  }
}

namespace {
// A coordinate of an operand's element: offset + Σ coefficients · result index.
struct LinearForm {
  int64_t offset = 0;
  SmallVector<int64_t> coefficients;
};
} // namespace

// Adds factor · expr to a form. Returns false if the expression is not linear.
static bool addTo(LinearForm &form, AffineExpr expr, int64_t factor) {
  if (auto constant = dyn_cast<AffineConstantExpr>(expr)) {
    form.offset += factor * constant.getValue();
    return true;
  }
  if (auto dim = dyn_cast<AffineDimExpr>(expr)) {
    form.coefficients[dim.getPosition()] += factor;
    return true;
  }
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return false;
  if (binary.getKind() == AffineExprKind::Add)
    return addTo(form, binary.getLHS(), factor) &&
           addTo(form, binary.getRHS(), factor);
  auto scale = dyn_cast<AffineConstantExpr>(binary.getRHS());
  return binary.getKind() == AffineExprKind::Mul && scale &&
         addTo(form, binary.getLHS(), factor * scale.getValue());
}

// Returns the coordinates of a source as linear forms, or nothing if one of
// them is not linear.
static std::optional<SmallVector<LinearForm>>
linearForms(const ElementSource &source) {
  SmallVector<LinearForm> forms;
  for (AffineExpr expr : source.map.getResults()) {
    LinearForm form;
    form.coefficients.assign(source.map.getNumDims(), 0);
    if (!addTo(form, expr, 1))
      return std::nullopt;
    forms.push_back(form);
  }
  return forms;
}

// Composes the affine map of the source with the operand's strides. That takes
// one source that always holds (no pad or concat) and linear coordinates (no
// lookup in a table).
std::optional<Strides> stridesOfResult(Operation *op, const Strides &operand) {
  auto moving = dyn_cast<ElementSourceOpInterface>(op);
  if (!moving)
    return std::nullopt;
  ArrayRef<int64_t> shape = shapeOf(op->getResult(0));
  SmallVector<ElementSource, 1> sources = moving.getElementSources();
  const ElementSource &source = sources.front();
  if (sources.size() != 1 || !source.conditions.empty())
    return std::nullopt;
  if (!source.map)
    return reshaped(shapeOf(op->getOperand(0)), operand, shape);
  auto forms = linearForms(source);
  if (!forms)
    return std::nullopt;
  Strides result{operand.offset, SmallVector<int64_t>(shape.size(), 0)};
  // position = Σ coordinate · stride, collected by the result's indices.
  // Operand axes of size 1 have stride 0 and add nothing.
  for (auto [form, stride] : llvm::zip_equal(*forms, operand.strides)) {
    result.offset += form.offset * stride;
    for (size_t i = 0; i < shape.size(); ++i)
      if (shape[i] != 1)
        result.strides[i] += form.coefficients[i] * stride;
  }
  // A slice that walks backwards has negative strides. Its memory then begins
  // before its first element, which `extentOf` and libraries do not support.
  if (llvm::any_of(result.strides, [](int64_t stride) { return stride < 0; }))
    return std::nullopt;
  return result;
}

// Inverts the source of the operand: its coordinate is one index of the result
// plus an offset, and all of its elements must lie within the result.
std::optional<Strides> stridesOfOperand(OpOperand &operand,
                                        const Strides &result) {
  auto moving = dyn_cast<ElementSourceOpInterface>(operand.getOwner());
  if (!moving)
    return std::nullopt;
  ArrayRef<int64_t> own = shapeOf(operand.get()),
                    shape = shapeOf(operand.getOwner()->getResult(0));
  SmallVector<ElementSource, 1> sources = moving.getElementSources();
  const ElementSource *source =
      llvm::find_if(sources, [&](const ElementSource &each) {
        return each.operand == operand.getOperandNumber();
      });
  if (source == sources.end())
    return std::nullopt;
  if (!source->map)
    return reshaped(shape, result, own);
  auto forms = linearForms(*source);
  if (!forms || own.size() != shape.size())
    return std::nullopt;
  Strides strides{result.offset, SmallVector<int64_t>(own.size(), 0)};
  for (auto [axis, form] : llvm::enumerate(*forms)) {
    // Exactly one coefficient is 1 and the others are 0. A slice with steps has
    // another coefficient, and cannot be written in place.
    const int64_t *one = llvm::find(form.coefficients, 1);
    if (one == form.coefficients.end() ||
        llvm::count(form.coefficients, 0) + 1 !=
            static_cast<int64_t>(shape.size()))
      return std::nullopt;
    size_t along = one - form.coefficients.begin();
    // The map subtracts where the operand begins in the result (concat).
    int64_t begin = -form.offset;
    if (begin < 0 || begin + own[axis] > shape[along])
      return std::nullopt;
    strides.offset += begin * result.strides[along];
    strides.strides[axis] = own[axis] == 1 ? 0 : result.strides[along];
  }
  return strides;
}

static bool hasMark(Operation *op, StringRef mark) {
  auto own = op->getAttrOfType<StringAttr>(kStridedAttr);
  return own && own.getValue() == mark;
}

// Follows marks to a dense tensor: up through ops that are read in their
// operand, down through those that are written in their result. Each step moves
// along one chain of marked ops, so this ends at the first unmarked op.
std::optional<Strides> stridesOf(Value value) {
  Operation *op = value.getDefiningOp();
  if (op && hasMark(op, kReadInOperand)) {
    std::optional<Strides> operand = stridesOf(op->getOperand(0));
    return operand ? stridesOfResult(op, *operand) : std::nullopt;
  }
  for (OpOperand &use : value.getUses())
    if (hasMark(use.getOwner(), kWrittenInResult)) {
      std::optional<Strides> result = stridesOf(use.getOwner()->getResult(0));
      return result ? stridesOfOperand(use, *result) : std::nullopt;
    }
  return denseStrides(shapeOf(value));
}

std::optional<int64_t> sliceOffset(SliceOp slice) {
  if (!isStrided(slice))
    return contiguousOffset(slice);
  std::optional<Strides> whole = stridesOf(slice.getInput()),
                         part = stridesOf(slice.getResult());
  return whole && part ? std::optional(part->offset - whole->offset)
                       : std::nullopt;
}

// A value whose strides cannot be told has an extent of 1; verify-memory
// refuses its mark before anything depends on it.
int64_t extentOf(Value value) {
  int64_t extent = 1;
  if (std::optional<Strides> strides = stridesOf(value))
    for (auto [size, stride] : llvm::zip(shapeOf(value), strides->strides))
      extent += (size - 1) * stride;
  return extent;
}

} // namespace fsdpc::nn
