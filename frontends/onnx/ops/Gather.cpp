// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gather, GatherND, GatherElements and OneHot. Constant indices often select a
// slice or the whole input, in which case no gather is made. One element per
// row, as in a loss, is take_along_axis. All other gathers become nn.embedding,
// the lookup of rows of a table, so that one adjoint and one kernel serve them
// all.
#include "frontends/onnx/ops/Gather.h"
#include "frontends/onnx/ops/IntegerBounds.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"

#include "frontends/onnx/GraphImporter.h"

#include <limits>
#include <numeric>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

// Returns the first element and the step of constant indices that form an
// arithmetic progression within `size`; nullopt for all others.
static std::optional<std::pair<int64_t, int64_t>> progression(Value indices,
                                                              int64_t size) {
  auto values = integersOf(indices);
  if (!values || values->empty())
    return std::nullopt;
  for (int64_t &value : *values) {
    value = value < 0 ? value + size : value;
    if (value < 0 || value >= size)
      return std::nullopt;
  }
  int64_t step = values->size() > 1 ? (*values)[1] - (*values)[0] : 1;
  for (size_t i = 1; i < values->size(); ++i)
    if ((*values)[i] - (*values)[i - 1] != step)
      return std::nullopt;
  if (step == 0)
    return std::nullopt;
  return std::pair((*values)[0], step);
}

// Three forms, the cheapest that fits: one lookup that is broadcast, a strided
// slice, or nn.embedding.
Value frontend::gatherRows(Emitter &b, Value table, Value ids,
                           std::optional<int64_t> padding) {
  ArrayRef<int64_t> row = shapeOf(table).drop_front();
  Shape shape(shapeOf(ids));
  shape.append(row.begin(), row.end());
  // Ids that are broadcast are looked up once.
  if (auto repeat = ids.getDefiningOp<nn::BroadcastOp>()) {
    Value once = gatherRows(b, table, repeat.getInput(), padding);
    Shape aligned(shape.size() - rankOf(once), 1);
    Shape rest(shapeOf(once));
    // If the broadcast adds leading dimensions, the ranks differ; sizes of 1
    // make up for it.
    aligned.append(rest.begin(), rest.end());
    return b.broadcast(b.reshape(once, aligned), shape);
  }
  if (auto even =
          padding ? std::nullopt : progression(ids, shapeOf(table)[0])) {
    Shape offsets(rankOf(table), 0), strides(rankOf(table), 1),
        part(shapeOf(table));
    offsets[0] = even->first;
    strides[0] = even->second;
    part[0] = tensorType(ids).getNumElements();
    return b.reshape(b.slice(table, offsets, strides, part), shape);
  }
  int64_t width =
      std::accumulate(row.begin(), row.end(), int64_t(1), std::multiplies<>());
  Value matrix = b.reshape(table, {shapeOf(table)[0], width});
  Value list = rankOf(ids) == 0 ? b.reshape(ids, {1}) : ids;
  Shape found(shapeOf(list));
  found.push_back(width);
  IntegerAttr row0 =
      padding ? b.builder.getI64IntegerAttr(*padding) : IntegerAttr();
  Value rows = b.make<nn::EmbeddingOp>(tensorType(table).clone(found), matrix,
                                       list, row0);
  return b.reshape(rows, shape);
}

LogicalResult frontend::expectIndices(Node &node, Value indices) {
  if (!elementOf(indices).isInteger(64) && !elementOf(indices).isInteger(32))
    return node.refuse("indices must be int32 or int64");
  return success();
}

LogicalResult frontend::expectInside(Node &node, Value indices, int64_t axis,
                                     int64_t size) {
  if (auto values = integersOf(indices))
    for (int64_t value : *values)
      if (value < -size || value >= size)
        return node.refuse("index " + Twine(value) +
                           " is out of range for dimension " + Twine(axis) +
                           " of size " + Twine(size));
  return success();
}

// Transposes the axis to the front, and restores its place in the result. The
// result is the data's shape with the axis replaced by the dimensions of the
// indices.
static Value gatherAxis(Emitter &b, Value data, Value indices, int64_t axis,
                        std::optional<int64_t> padding) {
  Shape permutation = {axis};
  for (int64_t i = 0; i < rankOf(data); ++i)
    if (i != axis)
      permutation.push_back(i);
  Value table = b.transpose(data, permutation);
  Value rows = gatherRows(b, table, indices, padding);
  Shape back;
  for (int64_t i = 0; i < axis; ++i)
    back.push_back(rankOf(indices) + i);
  for (int64_t i = 0; i < rankOf(indices); ++i)
    back.push_back(i);
  for (int64_t i = axis; i < rankOf(data) - 1; ++i)
    back.push_back(rankOf(indices) + i);
  return b.transpose(rows, back);
}

// Data [a, n, b] and indices [i, j] along the axis of n give [a, i, j, b].
static LogicalResult gather(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  Emitter &b = node.b;
  Value data = node.input(0), indices = node.input(1);
  auto axis = node.axis(node.getInt("axis", 0), rankOf(data));
  if (!axis || failed(expectIndices(node, indices)))
    return failure();
  ArrayRef<int64_t> from = shapeOf(data), ids = shapeOf(indices);
  Shape shape(from.take_front(*axis));
  shape.append(ids.begin(), ids.end());
  shape.append(from.begin() + *axis + 1, from.end());
  if (failed(node.checkShape(shape)))
    return failure();
  if (failed(expectInside(node, indices, *axis, from[*axis])))
    return failure();
  if (auto even = progression(indices, from[*axis])) {
    Shape offsets(from.size(), 0), strides(from.size(), 1), part(from);
    offsets[*axis] = even->first;
    strides[*axis] = even->second;
    part[*axis] = tensorType(indices).getNumElements();
    // A slice has no padding index, so such an embedding stays a lookup.
    auto padding = node.importer.paddingIndex(node);
    if (!padding)
      return node.result(
          b.reshape(b.slice(data, offsets, strides, part), shape));
  }
  return node.result(
      gatherAxis(b, data, indices, *axis, node.importer.paddingIndex(node)));
}

Value frontend::gatherAlong(Emitter &b, Value data, Value ids, int64_t axis) {
  return gatherAxis(b, data, ids, axis, std::nullopt);
}

// The position is kept in i64. `inside` stays null if every index is inside by
// its bounds, and then no select is made.
Value frontend::linearPosition(Emitter &b, ArrayRef<Value> indices,
                               ArrayRef<int64_t> sizes) {
  Value total, inside;
  int64_t stride = 1;
  for (int64_t k = sizes.size() - 1; k >= 0; --k) {
    Value index = b.cast(indices[k], b.builder.getI64Type());
    // Positions of an iota are inside by construction.
    IntegerBounds bounds = boundsOf(index);
    if (!indices[k].getDefiningOp<nn::IotaOp>() &&
        (bounds.low < 0 || bounds.high >= sizes[k])) {
      Value negative = b.compare(nn::Predicate::lt, index, b.like(index, 0));
      index = b.select(negative, b.binary<nn::AddOp>(index, double(sizes[k])),
                       index);
      Value fits = b.binary<nn::AndOp>(
          b.compare(nn::Predicate::ge, index, b.like(index, 0)),
          b.compare(nn::Predicate::lt, index, b.like(index, sizes[k])));
      inside = inside ? b.binary<nn::AndOp>(inside, fits) : fits;
    }
    Value term = b.binary<nn::MulOp>(index, double(stride));
    total = total ? b.binary<nn::AddOp>(total, term) : term;
    stride *= sizes[k];
  }
  if (!inside)
    return total;
  double outside = double(std::numeric_limits<int64_t>::min());
  return b.select(inside, total, b.like(total, outside));
}

// The leading dimensions that the indices address become one, and their indices
// one linear index. Data [batch…, n…, rest…] and indices [batch…, outer…,
// depth] give [batch…, outer…, rest…]. The position in a batch is an iota.
static LogicalResult gatherND(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  Emitter &b = node.b;
  Value data = node.input(0), indices = node.input(1);
  if (failed(expectIndices(node, indices)))
    return failure();
  int64_t batch = node.getInt("batch_dims", 0);
  if (batch < 0 || rankOf(indices) <= batch || rankOf(data) < batch ||
      shapeOf(indices).take_front(batch) != shapeOf(data).take_front(batch))
    return node.refuse("the first " + Twine(batch) +
                       " dimensions ('batch_dims') must agree, and indices "
                       "must have one more");
  int64_t depth = shapeOf(indices).back();
  if (depth < 1 || batch + depth > rankOf(data))
    return node.refuse("indices address " + Twine(depth) + " of " +
                       Twine(rankOf(data) - batch) + " dimensions");
  ArrayRef<int64_t> sizes = shapeOf(data).take_front(batch + depth);
  ArrayRef<int64_t> rest = shapeOf(data).drop_front(batch + depth);
  Shape outer(shapeOf(indices).drop_back()), shape(outer);
  shape.append(rest.begin(), rest.end());
  if (failed(node.checkShape(shape)))
    return failure();
  SmallVector<Value> parts;
  for (int64_t k = 0; k < batch; ++k)
    parts.push_back(b.iota(outer, k));
  for (int64_t k = 0; k < depth; ++k) {
    parts.push_back(
        b.reshape(b.slice(indices, rankOf(indices) - 1, k, 1), outer));
    if (failed(expectInside(node, parts.back(), batch + k, sizes[batch + k])))
      return failure();
  }
  Shape table = {std::accumulate(sizes.begin(), sizes.end(), int64_t(1),
                                 std::multiplies<>())};
  table.append(rest.begin(), rest.end());
  return node.result(
      gatherRows(b, b.reshape(data, table), linearPosition(b, parts, sizes)));
}

// All but one coordinate of each position are iotas.
Value frontend::takeElements(Emitter &b, Value data, Value indices,
                             int64_t axis) {
  SmallVector<Value> parts;
  for (int64_t d = 0; d < rankOf(data); ++d)
    parts.push_back(d == axis ? indices : b.iota(shapeOf(indices), d));
  Value flat = b.reshape(data, {tensorType(data).getNumElements()});
  return gatherRows(b, flat, linearPosition(b, parts, shapeOf(data)));
}

// In general, an element is addressed by its linear position in the input.
static LogicalResult gatherElements(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  Emitter &b = node.b;
  Value data = node.input(0), indices = node.input(1);
  auto axis = node.axis(node.getInt("axis", 0), rankOf(data));
  if (!axis || failed(expectIndices(node, indices)))
    return failure();
  if (rankOf(indices) != rankOf(data))
    return node.refuse("indices must have the rank of the input");
  for (int64_t d = 0; d < rankOf(data); ++d)
    if (d != *axis && shapeOf(indices)[d] > shapeOf(data)[d])
      return node.refuse("indices exceed the input in dimension " + Twine(d));
  if (failed(expectInside(node, indices, *axis, shapeOf(data)[*axis])))
    return failure();
  // One element of each row, as when a loss picks its target.
  bool isPick = *axis == rankOf(data) - 1 && shapeOf(indices).back() == 1 &&
                shapeOf(indices).drop_back() == shapeOf(data).drop_back();
  if (isPick && !constantOf(indices)) {
    Value place = b.cast(indices, b.builder.getI64Type());
    Value negative = b.compare(nn::Predicate::lt, place, b.like(place, 0));
    Value wrapped = b.binary<nn::AddOp>(place, double(shapeOf(data).back()));
    place = b.select(negative, wrapped, place);
    return node.result(b.make<nn::TakeAlongAxisOp>(
        tensorType(data).clone(shapeOf(indices)), data, place));
  }
  return node.result(takeElements(b, data, indices, *axis));
}

// Compares the index with positions along the new axis. An index outside of the
// depth gives a row of off values. `values` is [off, on].
static LogicalResult oneHot(Node &node) {
  if (failed(node.expectInputs(3, 3)))
    return failure();
  Emitter &b = node.b;
  Value indices = node.input(0), values = node.input(2);
  auto depth = node.wholeNumber(1, "'depth'");
  if (!depth)
    return failure();
  // Indices may have any numeric type; that of their values is ONNX's choice.
  if (elementOf(indices).isInteger(1))
    return node.refuse("indices must be numbers");
  auto axis = node.axis(node.getInt("axis", -1), rankOf(indices) + 1);
  if (!axis || rankOf(values) != 1 || shapeOf(values)[0] != 2)
    return axis ? node.refuse("'values' must have two elements") : failure();
  Shape shape(shapeOf(indices)), unit(shape);
  shape.insert(shape.begin() + *axis, *depth);
  unit.insert(unit.begin() + *axis, 1);
  if (failed(node.checkShape(shape)))
    return failure();
  Value index = b.cast(indices, b.builder.getI64Type());
  Value negative = b.compare(nn::Predicate::lt, index, b.like(index, 0));
  index = b.select(negative, b.binary<nn::AddOp>(index, double(*depth)), index);
  index = b.broadcast(b.reshape(index, unit), shape);
  Value hot = b.compare(nn::Predicate::eq, index, b.iota(shape, *axis));
  auto value = [&](int64_t i) {
    return b.broadcast(b.reshape(b.slice(values, 0, i, 1), {}), shape);
  };
  return node.result(b.select(hot, value(1), value(0)));
}

void frontend::registerGather(HandlerTable &table) {
  table.add("Gather", 1, gather);
  table.add("GatherND", 11, gatherND);
  table.add("GatherElements", 11, gatherElements);
  table.add("OneHot", 9, oneHot);
}
