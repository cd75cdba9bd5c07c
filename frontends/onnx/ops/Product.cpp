// Matrix products: MatMul, Gemm and Einsum. All become nn.matmul, whose
// operands are batches of matrices with transposes as flags. Biases stay
// separate additions here; fuse-epilogues adds them to the product where the
// target's library can.
#include "frontends/onnx/Node.h"

#include <numeric>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

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
  // nn.matmul broadcasts the batch dimensions itself.
  Value result = b.matmul(lhs, rhs, *shape);
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
  Value result = b.matmul(lhs, rhs, {m, n}, transA, transB);
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

namespace {
// An equation, as "ij,jk->ik": its operands with their labels, the labels of
// the result, and the size that each label stands for.
struct Equation {
  SmallVector<Term, 2> terms;
  std::string out;
  std::map<char, int64_t> sizes;

  Shape shapeOf(const std::string &labels) const {
    Shape shape;
    for (char label : labels)
      shape.push_back(sizes.at(label));
    return shape;
  }
  int64_t count(const std::string &labels) const {
    Shape shape = shapeOf(labels);
    return std::accumulate(shape.begin(), shape.end(), int64_t(1),
                           std::multiplies<>());
  }
};
} // namespace

// Returns nullopt after it has refused the node.
static std::optional<Equation> readEquation(Node &node) {
  std::string equation = node.getString("equation", "");
  equation.erase(std::remove(equation.begin(), equation.end(), ' '),
                 equation.end());
  auto unsupported = [&]() -> std::optional<Equation> {
    (void)node.refuse("equation '" + equation + "' is not supported");
    return std::nullopt;
  };
  StringRef left, right;
  std::tie(left, right) = StringRef(equation).split("->");
  SmallVector<StringRef> lists;
  left.split(lists, ',');
  if (!StringRef(equation).contains("->") ||
      int64_t(lists.size()) != node.numInputs())
    return unsupported();
  Equation e;
  for (auto [i, labels] : llvm::enumerate(lists)) {
    Value value = node.input(i);
    if (failed(node.expectFloat(value)))
      return std::nullopt;
    if (int64_t(labels.size()) != rankOf(value))
      return unsupported();
    for (auto [d, label] : llvm::enumerate(labels)) {
      int64_t size = shapeOf(value)[d];
      auto [known, fresh] = e.sizes.try_emplace(label, size);
      // Repeated labels (diagonals) and ellipses are not supported.
      if (!isalpha(label) || labels.count(label) != 1 ||
          (!fresh && known->second != size))
        return unsupported();
    }
    e.terms.push_back({value, labels.str()});
  }
  for (char label : right)
    if (!e.sizes.count(label) || right.count(label) != 1)
      return unsupported();
  e.out = right.str();
  return e;
}

// Labels fall into four classes: in both operands and the result (batch), in
// the first only (rows), in the second only (columns), in both but not the
// result (inner). Transposes bring the operands into the form of one batched
// product.
static LogicalResult contract(Node &node, Equation &e) {
  Emitter &b = node.b;
  sumAlone(b, e.terms[0], e.out + e.terms[1].labels);
  sumAlone(b, e.terms[1], e.out + e.terms[0].labels);
  std::string batch, rows, columns, inner;
  auto has = [](const std::string &labels, char label) {
    return labels.find(label) != std::string::npos;
  };
  for (char label : e.terms[0].labels)
    (!has(e.terms[1].labels, label) ? rows
     : has(e.out, label)            ? batch
                                    : inner) += label;
  for (char label : e.terms[1].labels)
    if (!has(e.terms[0].labels, label))
      columns += label;
  if (failed(node.checkShape(e.shapeOf(batch + rows + columns))))
    return failure();
  Shape shape = e.shapeOf(batch), lhsShape = shape, rhsShape = shape;
  lhsShape.append({e.count(rows), e.count(inner)});
  rhsShape.append({e.count(inner), e.count(columns)});
  shape.append({e.count(rows), e.count(columns)});
  Value lhs = b.reshape(order(b, e.terms[0], batch + rows + inner), lhsShape);
  Value rhs =
      b.reshape(order(b, e.terms[1], batch + inner + columns), rhsShape);
  Value result = b.matmul(lhs, rhs, shape);
  Term whole = {b.reshape(result, e.shapeOf(batch + rows + columns)),
                batch + rows + columns};
  return node.result(order(b, whole, e.out));
}

static LogicalResult einsum(Node &node) {
  if (failed(node.expectInputs(1, 2)))
    return failure();
  std::optional<Equation> e = readEquation(node);
  if (!e)
    return failure();
  if (e->terms.size() == 2)
    return contract(node, *e);
  sumAlone(node.b, e->terms[0], e->out);
  return node.result(order(node.b, e->terms[0], e->out));
}

void frontend::registerProduct(HandlerTable &table) {
  table.add("MatMul", 1, matMul);
  table.add("Gemm", 7, gemm);
  table.add("Einsum", 12, einsum);
}
