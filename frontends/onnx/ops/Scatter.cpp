// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ScatterElements, ScatterND and TensorScatter. Sums of updates are
// nn.embedding_grad, which adds rows into a table; updates that replace
// elements are such a sum, selected where an update arrives. Products and
// extremes compare each element with each update, since kernels have no atomic
// forms of them; that is refused where it would be slow.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/ops/Gather.h"

#include <limits>
#include <numeric>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {
// Rows of a table, and rows of updates with their places in the table.
struct Update {
  Value table, rows, ids; // P×W, U×W, U
};
} // namespace

// Adds rows into a table of zeros of `type`. Equal ids add up. Ids outside of
// the table are dropped.
static Value addedRows(Emitter &b, Type type, Value rows, Value ids) {
  return b.make<nn::EmbeddingGradOp>(type, rows, ids, Value(), IntegerAttr());
}

// Combines all updates of each element by comparing places. Refuses more than
// 2^28 comparisons. The work is places · updates · width: fine for the few
// updates that models make, refused beyond.
static Value compared(Node &node, const Update &u, nn::ReduceKind kind,
                      double identity) {
  Emitter &b = node.b;
  int64_t places = shapeOf(u.table)[0], width = shapeOf(u.table)[1];
  int64_t updates = shapeOf(u.ids)[0];
  std::optional<int64_t> work = countElements({updates, places, width});
  if (!work || *work > int64_t(1) << 28)
    return (void)node.refuse("a scatter of this type or reduction over so many "
                             "elements is not supported"),
           Value();
  Shape shape = {updates, places, width};
  Value ids = b.broadcast(
      b.reshape(b.cast(u.ids, b.builder.getI64Type()), {updates, 1, 1}), shape);
  Value hit = b.compare(nn::Predicate::eq, ids, b.iota(shape, 1));
  Value rows = b.broadcast(b.reshape(u.rows, {updates, 1, width}), shape);
  Value found = b.select(hit, rows, b.like(rows, identity));
  return b.reshape(b.reduce(kind, found, {0}), {places, width});
}

// Returns the number of updates of each row, as a column. Adds up ones.
static Value countOf(Emitter &b, const Update &u) {
  Shape column = {shapeOf(u.table)[0], 1}, ones = {shapeOf(u.ids)[0], 1};
  auto type = RankedTensorType::get(column, b.builder.getF32Type());
  return addedRows(b, type, b.splat(type.clone(ones), 1), u.ids);
}

// Returns true if all places are known, and differ.
static bool areDistinct(Value ids) {
  auto places = integersOf(ids);
  if (!places)
    return false;
  llvm::sort(*places);
  return llvm::adjacent_find(*places) == places->end();
}

// Returns the table with rows replaced, or null after it has refused the node.
// ONNX leaves open what several updates of one place give; torch exports
// scatters of equal values there, which must stay what they are. So floats are
// the mean of the updates, and integers the largest.
static Value replaced(Node &node, const Update &u, double most) {
  Emitter &b = node.b;
  bool isFloat = isa<FloatType>(elementOf(u.table));
  Value count = countOf(b, u);
  Value rows = isFloat ? addedRows(b, u.table.getType(), u.rows, u.ids)
                       : compared(node, u, nn::ReduceKind::max, -most);
  if (!rows)
    return rows;
  ArrayRef<int64_t> shape = shapeOf(u.table);
  if (isFloat && !areDistinct(u.ids)) {
    Value least = b.binary<nn::MaximumOp>(count, 1.0);
    rows = b.binary<nn::DivOp>(
        rows, b.broadcast(b.cast(least, elementOf(u.table)), shape));
  }
  Value hit = b.compare(nn::Predicate::gt, count, b.like(count, 0));
  return b.select(b.broadcast(hit, shape), rows, u.table);
}

// Returns the table after the updates, or null after it has refused the node.
static Value updated(Node &node, const Update &u, StringRef reduction) {
  Emitter &b = node.b;
  bool isFloat = isa<FloatType>(elementOf(u.table));
  constexpr double infinity = std::numeric_limits<double>::infinity();
  // Whole numbers beyond 2^53 are left alone: no index or count is as large.
  double most = isFloat ? infinity : 9007199254740992.0;
  if (elementOf(u.table).isInteger(32))
    most = std::numeric_limits<int32_t>::max();
  if (reduction == "none")
    return replaced(node, u, most);
  if (reduction == "add") {
    Value sum = isFloat ? addedRows(b, u.table.getType(), u.rows, u.ids)
                        : compared(node, u, nn::ReduceKind::sum, 0);
    return sum ? b.binary<nn::AddOp>(u.table, sum) : sum;
  }
  if (reduction == "mul") {
    Value product = compared(node, u, nn::ReduceKind::prod, 1);
    return product ? b.binary<nn::MulOp>(u.table, product) : product;
  }
  if (reduction == "max") {
    Value largest = compared(node, u, nn::ReduceKind::max, -most);
    return largest ? b.binary<nn::MaximumOp>(u.table, largest) : largest;
  }
  if (reduction == "min") {
    Value least = compared(node, u, nn::ReduceKind::min, most);
    return least ? b.binary<nn::MinimumOp>(u.table, least) : least;
  }
  return (void)node.refuse("attribute 'reduction' is '" + reduction +
                           "'; use none, add, mul, max or min"),
         Value();
}

// Bools travel as integers.
static Value throughIntegers(Node &node, Update u, StringRef reduction) {
  Emitter &b = node.b;
  Type i32 = b.builder.getI32Type();
  u.table = b.cast(u.table, i32);
  u.rows = b.cast(u.rows, i32);
  Value result = updated(node, u, reduction);
  return result ? b.cast(result, b.builder.getI1Type()) : result;
}

// Without elements or without updates the data pass unchanged.
static LogicalResult finish(Node &node, Update u, StringRef reduction) {
  Value data = node.input(0);
  if (elementOf(u.rows) != elementOf(u.table))
    return node.refuse("data and updates must have the same element type");
  if (tensorType(data).getNumElements() == 0 ||
      tensorType(u.ids).getNumElements() == 0)
    return node.result(data);
  Value result = elementOf(data).isInteger(1)
                     ? throughIntegers(node, u, reduction)
                     : updated(node, u, reduction);
  return result ? node.result(node.b.reshape(result, shapeOf(data)))
                : failure();
}

// Each update writes data[…, indices[…], …] along the axis; its other
// coordinates are its own.
static LogicalResult scatterElements(Node &node) {
  if (failed(node.expectInputs(3, 3)))
    return failure();
  Emitter &b = node.b;
  Value data = node.input(0), indices = node.input(1), updates = node.input(2);
  auto axis = node.axis(node.getInt("axis", 0), rankOf(data));
  if (!axis || failed(expectIndices(node, indices)))
    return failure();
  if (shapeOf(indices) != shapeOf(updates) || rankOf(indices) != rankOf(data))
    return node.refuse("indices and updates must have the same shape, and the "
                       "rank of the data");
  for (int64_t d = 0; d < rankOf(data); ++d)
    if (d != *axis && shapeOf(indices)[d] > shapeOf(data)[d])
      return node.refuse("indices exceed the data in dimension " + Twine(d));
  if (failed(expectInside(node, indices, *axis, shapeOf(data)[*axis])))
    return failure();
  SmallVector<Value> parts;
  for (int64_t d = 0; d < rankOf(data); ++d)
    parts.push_back(d == *axis ? indices : b.iota(shapeOf(indices), d));
  int64_t places = tensorType(data).getNumElements();
  int64_t count = tensorType(updates).getNumElements();
  Value ids = linearPosition(b, parts, shapeOf(data));
  return finish(node,
                {b.reshape(data, {places, 1}), b.reshape(updates, {count, 1}),
                 b.reshape(ids, {count})},
                node.getString("reduction", "none"));
}

// The last dimension of the indices addresses the leading dimensions of the
// data; each update is a row of the rest.
static LogicalResult scatterND(Node &node) {
  if (failed(node.expectInputs(3, 3)))
    return failure();
  Emitter &b = node.b;
  Value data = node.input(0), indices = node.input(1), updates = node.input(2);
  if (failed(expectIndices(node, indices)))
    return failure();
  int64_t depth = rankOf(indices) < 1 ? 0 : shapeOf(indices).back();
  if (depth < 1 || depth > rankOf(data))
    return node.refuse("indices address " + Twine(depth) + " of " +
                       Twine(rankOf(data)) + " dimensions");
  ArrayRef<int64_t> sizes = shapeOf(data).take_front(depth);
  ArrayRef<int64_t> row = shapeOf(data).drop_front(depth);
  Shape outer(shapeOf(indices).drop_back()), expected(outer);
  expected.append(row.begin(), row.end());
  if (shapeOf(updates) != ArrayRef<int64_t>(expected))
    return node.refuse("updates have shape " + printShape(shapeOf(updates)) +
                       "; the indices ask for " + printShape(expected));
  SmallVector<Value> parts;
  for (int64_t k = 0; k < depth; ++k) {
    parts.push_back(
        b.reshape(b.slice(indices, rankOf(indices) - 1, k, 1), outer));
    if (failed(expectInside(node, parts.back(), k, sizes[k])))
      return failure();
  }
  auto product = [](ArrayRef<int64_t> sizes) {
    return std::accumulate(sizes.begin(), sizes.end(), int64_t(1),
                           std::multiplies<>());
  };
  int64_t places = product(sizes), width = product(row), count = product(outer);
  Value ids = linearPosition(b, parts, sizes);
  return finish(node,
                {b.reshape(data, {places, width}),
                 b.reshape(updates, {count, width}), b.reshape(ids, {count})},
                node.getString("reduction", "none"));
}

// Writes the update of each sample into its cache from a place of its own on.
// Each element of the cache looks up which element of the update is its own.
// The update of a KV cache. In circular mode the place wraps around.
static LogicalResult tensorScatter(Node &node) {
  if (failed(node.expectInputs(2, 3)))
    return failure();
  Emitter &b = node.b;
  Value cache = node.input(0), update = node.input(1), first = node.input(2);
  auto axis = node.axis(node.getInt("axis", -2), rankOf(cache));
  if (!axis)
    return failure();
  std::string mode = node.getString("mode", "linear");
  if (*axis == 0 || (mode != "linear" && mode != "circular"))
    return node.refuse("'axis' must not be the batch's, and 'mode' must be "
                       "linear or circular");
  int64_t length = shapeOf(cache)[*axis];
  Shape expected(shapeOf(cache));
  bool fits = rankOf(update) == rankOf(cache);
  int64_t count = fits ? shapeOf(update)[*axis] : 0;
  expected[*axis] = count;
  if (!fits || shapeOf(update) != ArrayRef<int64_t>(expected) || count < 1 ||
      count > length || elementOf(update) != elementOf(cache))
    return node.refuse("the update must have the cache's shape but for at most "
                       "as many elements along 'axis'");
  // Relative to the first place that is written, so `isNew` is a range from 0.
  Value place = b.iota(shapeOf(cache), *axis);
  if (first) {
    if (failed(expectIndices(node, first)) ||
        shapeOf(first) != shapeOf(cache).take_front(1))
      return node.refuse("'write_indices' must have one integer per sample");
    for (int64_t value : integersOf(first).value_or(SmallVector<int64_t>()))
      if (value < 0 || value >= length ||
          (mode == "linear" && value + count > length))
        return node.refuse("write index " + Twine(value) +
                           " does not fit a cache of length " + Twine(length));
    Shape column(rankOf(cache), 1);
    column[0] = shapeOf(cache)[0];
    Value begin = b.reshape(b.cast(first, b.builder.getI64Type()), column);
    place = b.binary<nn::SubOp>(place, b.broadcast(begin, shapeOf(cache)));
  }
  if (mode == "circular")
    place = b.binary<nn::ModOp>(place, double(length));
  Value isNew = b.binary<nn::AndOp>(
      b.compare(nn::Predicate::ge, place, b.like(place, 0)),
      b.compare(nn::Predicate::lt, place, b.like(place, double(count))));
  Value source = b.select(isNew, place, b.like(place, 0));
  return node.result(
      b.select(isNew, takeElements(b, update, source, *axis), cache));
}

void frontend::registerScatter(HandlerTable &table) {
  table.add("Scatter", 9, scatterElements);
  table.add("ScatterElements", 11, scatterElements);
  table.add("ScatterND", 11, scatterND);
  table.add("TensorScatter", 24, tensorScatter);
}
