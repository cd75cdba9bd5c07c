// Matrix products: MatMul, Gemm and Einsum. All become nn.matmul, whose
// operands are batches of matrices with transposes as flags. Biases stay
// separate additions here; fuse-epilogues adds them to the product where the
// target's library can.
#include "frontends/onnx/Node.h"

#include <numeric>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

static Value product(Emitter &b, Value lhs, Value rhs, ArrayRef<int64_t> shape,
                     bool transposeA = false, bool transposeB = false) {
  return b.make<nn::MatmulOp>(tensorType(lhs).clone(shape), lhs, rhs, Value(),
                              transposeA, transposeB);
}

// Batch dimensions broadcast.
static LogicalResult matMul(Node &node) {
  if (failed(node.expectInputs(2, 2)))
    return failure();
  Emitter &b = node.b;
  Value lhs = node.input(0), rhs = node.input(1);
  if (failed(node.expectFloat(lhs)) || failed(node.expectFloat(rhs)))
    return failure();
  if (rankOf(lhs) == 0 || rankOf(rhs) == 0)
    return node.refuse("inputs must have rank 1 or more");
  // A vector is a row on the left and a column on the right.
  bool row = rankOf(lhs) == 1, column = rankOf(rhs) == 1;
  if (row)
    lhs = b.reshape(lhs, {1, shapeOf(lhs)[0]});
  if (column)
    rhs = b.reshape(rhs, {shapeOf(rhs)[0], 1});
  int64_t m = shapeOf(lhs).end()[-2], k = shapeOf(lhs).back(),
          n = shapeOf(rhs).back();
  if (shapeOf(rhs).end()[-2] != k)
    return node.refuse("inner dimensions " + Twine(k) + " and " +
                       Twine(shapeOf(rhs).end()[-2]) + " differ");
  std::optional<Shape> shape =
      broadcastShapes(shapeOf(lhs).drop_back(2), shapeOf(rhs).drop_back(2));
  if (!shape)
    return node.refuse("batch dimensions do not broadcast");
  shape->append({m, n});
  if (failed(node.checkShape(*shape)))
    return failure();
  Value result = product(b, lhs, rhs, *shape);
  if (column)
    shape->pop_back();
  if (row)
    shape->erase(shape->end() - (column ? 1 : 2));
  return node.result(b.reshape(result, *shape));
}

// alpha · A · B + beta · C, where C broadcasts.
static LogicalResult gemm(Node &node) {
  if (failed(node.expectInputs(2, 3)))
    return failure();
  Emitter &b = node.b;
  Value lhs = node.input(0), rhs = node.input(1), bias = node.input(2);
  if (failed(node.expectFloat(lhs)) || failed(node.expectFloat(rhs)))
    return failure();
  if (rankOf(lhs) != 2 || rankOf(rhs) != 2)
    return node.refuse("inputs must be matrices");
  bool transA = node.getInt("transA", 0), transB = node.getInt("transB", 0);
  int64_t m = shapeOf(lhs)[transA], k = shapeOf(lhs)[!transA];
  int64_t n = shapeOf(rhs)[!transB];
  if (shapeOf(rhs)[transB] != k)
    return node.refuse("inner dimensions " + Twine(k) + " and " +
                       Twine(shapeOf(rhs)[transB]) + " differ");
  if (failed(node.checkShape({m, n})))
    return failure();
  Value result = product(b, lhs, rhs, {m, n}, transA, transB);
  double alpha = node.getFloat("alpha", 1), beta = node.getFloat("beta", 1);
  if (alpha != 1)
    result = b.binary<nn::MulOp>(result, alpha);
  if (!bias || beta == 0)
    return node.result(result);
  if (failed(node.expectFloat(bias)))
    return failure();
  if (!node.broadcastsTo(bias, {m, n}))
    return node.refuse(
        "the bias does not broadcast to the shape of the product");
  if (beta != 1)
    bias = b.binary<nn::MulOp>(bias, beta);
  return node.result(b.binary<nn::AddOp>(result, b.broadcast(bias, {m, n})));
}

// ---- Einsum of one or two operands: sums, transposes and one product ----

namespace {
struct Term {
  Value value;
  std::string labels; // one per dimension
};
} // namespace

// Sums over the labels that neither the other operand nor the result has.
static void sumAlone(Emitter &b, Term &term, const std::string &kept) {
  Shape axes, shape;
  std::string labels;
  for (auto [i, label] : llvm::enumerate(term.labels))
    if (kept.find(label) == std::string::npos) {
      axes.push_back(i);
    } else {
      labels += label;
      shape.push_back(shapeOf(term.value)[i]);
    }
  term.value =
      b.reshape(b.reduce(nn::ReduceKind::sum, term.value, axes), shape);
  term.labels = labels;
}

// Transposes a term to the given order of labels.
static Value order(Emitter &b, const Term &term, const std::string &labels) {
  Shape permutation;
  for (char label : labels)
    permutation.push_back(term.labels.find(label));
  return b.transpose(term.value, permutation);
}

// Labels fall into four classes: in both operands and the result (batch), in
// the first only (rows), in the second only (columns), in both but not the
// result (inner). Transposes bring the operands into the form of one batched
// product.
static LogicalResult einsum(Node &node) {
  if (failed(node.expectInputs(1, 2)))
    return failure();
  Emitter &b = node.b;
  std::string equation = node.getString("equation", "");
  equation.erase(std::remove(equation.begin(), equation.end(), ' '),
                 equation.end());
  auto unsupported = [&] {
    return node.refuse("equation '" + equation + "' is not supported");
  };
  StringRef left, right;
  std::tie(left, right) = StringRef(equation).split("->");
  SmallVector<StringRef> lists;
  left.split(lists, ',');
  if (!StringRef(equation).contains("->") ||
      int64_t(lists.size()) != node.numInputs())
    return unsupported();
  SmallVector<Term, 2> terms;
  std::map<char, int64_t> sizes;
  for (auto [i, labels] : llvm::enumerate(lists)) {
    Value value = node.input(i);
    if (failed(node.expectFloat(value)))
      return failure();
    if (int64_t(labels.size()) != rankOf(value))
      return unsupported();
    for (auto [d, label] : llvm::enumerate(labels)) {
      int64_t size = shapeOf(value)[d];
      auto [known, fresh] = sizes.try_emplace(label, size);
      if (!isalpha(label) || labels.count(label) != 1 ||
          (!fresh && known->second != size))
        return unsupported();
    }
    terms.push_back({value, labels.str()});
  }
  for (char label : right)
    if (!sizes.count(label) || right.count(label) != 1)
      return unsupported();
  std::string out = right.str();
  if (terms.size() == 1) {
    sumAlone(b, terms[0], out);
    return node.result(order(b, terms[0], out));
  }
  sumAlone(b, terms[0], out + terms[1].labels);
  sumAlone(b, terms[1], out + terms[0].labels);
  std::string batch, rows, columns, inner;
  auto has = [](const std::string &labels, char label) {
    return labels.find(label) != std::string::npos;
  };
  for (char label : terms[0].labels)
    (!has(terms[1].labels, label) ? rows
     : has(out, label)            ? batch
                                  : inner) += label;
  for (char label : terms[1].labels)
    if (!has(terms[0].labels, label))
      columns += label;
  auto sizesOf = [&](const std::string &labels) {
    Shape shape;
    for (char label : labels)
      shape.push_back(sizes[label]);
    return shape;
  };
  auto count = [&](const std::string &labels) {
    Shape shape = sizesOf(labels);
    return std::accumulate(shape.begin(), shape.end(), int64_t(1),
                           std::multiplies<>());
  };
  if (failed(node.checkShape(sizesOf(batch + rows + columns))))
    return failure();
  Shape shape = sizesOf(batch), lhsShape = shape, rhsShape = shape;
  lhsShape.append({count(rows), count(inner)});
  rhsShape.append({count(inner), count(columns)});
  shape.append({count(rows), count(columns)});
  Value lhs = b.reshape(order(b, terms[0], batch + rows + inner), lhsShape);
  Value rhs = b.reshape(order(b, terms[1], batch + inner + columns), rhsShape);
  Value result = product(b, lhs, rhs, shape);
  Term whole = {b.reshape(result, sizesOf(batch + rows + columns)),
                batch + rows + columns};
  return node.result(order(b, whole, out));
}

void frontend::registerProduct(HandlerTable &table) {
  table.add("MatMul", 13, matMul);
  table.add("Gemm", 13, gemm);
  table.add("Einsum", 12, einsum);
}
