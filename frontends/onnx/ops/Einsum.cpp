// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Einsum: sums, diagonals, transposes and products. Operands are contracted
// from left to right, two at a time, each pair as one batched matrix product.
// Labels that an ellipsis stands for are counted from the end, so that they
// broadcast.
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/Node.h"

#include <numeric>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {
// An operand, or the product of several.
struct Term {
  Value value;
  std::string labels; // one per dimension
};

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
  // The product of the sizes; 1 for no labels.
  int64_t count(const std::string &labels) const {
    Shape shape = shapeOf(labels);
    return std::accumulate(shape.begin(), shape.end(), int64_t(1),
                           std::multiplies<>());
  }
};
} // namespace

static bool has(const std::string &labels, char label) {
  return labels.find(label) != std::string::npos;
}

// Sums over the labels that neither another operand nor the result has. Summing
// first makes the product smaller.
static void sumAlone(Emitter &b, Term &term, const std::string &kept) {
  Shape axes, shape;
  std::string labels;
  for (auto [i, label] : llvm::enumerate(term.labels))
    if (!has(kept, label)) {
      axes.push_back(i);
    } else {
      labels += label;
      shape.push_back(shapeOf(term.value)[i]);
    }
  term.value =
      b.reshape(b.reduce(nn::ReduceKind::sum, term.value, axes), shape);
  term.labels = labels;
}

// Transposes a term to the given order of labels. Every label of the term must
// be in `labels`.
static Value order(Emitter &b, const Term &term, const std::string &labels) {
  Shape permutation;
  for (char label : labels)
    permutation.push_back(term.labels.find(label));
  return b.transpose(term.value, permutation);
}

// Takes the diagonal of dimensions with the same label: brought together at the
// end they are one dimension of n², of which every (n + 1)-th element counts.
// "ii->i" and "iij->ij". Three equal labels take two rounds.
static void takeDiagonals(Emitter &b, Term &term) {
  for (size_t i = 0; i < term.labels.size(); ++i) {
    size_t j = term.labels.find(term.labels[i], i + 1);
    if (j == std::string::npos)
      continue;
    char label = term.labels[i];
    Shape permutation;
    std::string rest;
    for (size_t d = 0; d < term.labels.size(); ++d)
      if (d != i && d != j) {
        permutation.push_back(d);
        rest += term.labels[d];
      }
    permutation.append({int64_t(i), int64_t(j)});
    Value x = b.transpose(term.value, permutation);
    Shape merged(shapeOf(x).drop_back()), offsets(merged.size(), 0),
        strides(merged.size(), 1), shape(merged);
    int64_t n = merged.back();
    merged.back() = n * n;
    strides.back() = n + 1;
    term.value = b.slice(b.reshape(x, merged), offsets, strides, shape);
    term.labels = rest + label;
    i = size_t(-1); // the labels have moved
  }
}

// ---- the equation ----

// Replaces an ellipsis by the digits of the dimensions that it stands for, of
// which there are `dims`: '0' is the last one. Returns nullopt if there are too
// few or too many.
static std::optional<std::string> expanded(StringRef labels, int64_t dims) {
  std::string result;
  size_t dots = labels.find("...");
  if (dots == StringRef::npos)
    return labels.str();
  if (dims < 0 || dims > 10)
    return std::nullopt;
  result = labels.take_front(dots).str();
  for (int64_t d = dims - 1; d >= 0; --d)
    result += char('0' + d);
  return result + labels.drop_front(dots + 3).str();
}

// Without "->" the result has the ellipsis, then the labels that occur once, in
// alphabetical order.
static std::string implicitResult(ArrayRef<StringRef> lists) {
  std::map<char, int64_t> counts;
  bool hasDots = false;
  for (StringRef list : lists) {
    hasDots |= list.contains("...");
    for (char label : list)
      ++counts[label];
  }
  std::string result = hasDots ? "..." : "";
  for (auto [label, count] : counts)
    if (label != '.' && count == 1)
      result += label;
  return result;
}

// Reads an operand. A dimension of size 1 under an ellipsis broadcasts: it is
// dropped, and the label's size is that of another operand. Returns false if
// the labels do not fit. `widest` becomes the largest number of dimensions that
// an ellipsis stands for, which the result's ellipsis has.
static bool readTerm(Node &node, Equation &e, StringRef list, int64_t i,
                     int64_t &widest) {
  Emitter &b = node.b;
  Value value = node.input(i);
  int64_t named = list.size() - (list.contains("...") ? 3 : 0);
  int64_t dims = rankOf(value) - named;
  auto labels = expanded(list, dims);
  if (!labels || int64_t(labels->size()) != rankOf(value))
    return false;
  if (list.contains("..."))
    widest = std::max(widest, dims);
  Term term;
  Shape shape;
  for (auto [label, size] : llvm::zip(*labels, shapeOf(value))) {
    if (!isalpha(label) && !isdigit(label))
      return false;
    if (isdigit(label) && size == 1) {
      e.sizes.try_emplace(label, 1);
      continue;
    }
    auto [known, fresh] = e.sizes.try_emplace(label, size);
    if (isdigit(label) && known->second == 1)
      known->second = size;
    if (known->second != size)
      return false;
    term.labels += label;
    shape.push_back(size);
  }
  term.value = b.reshape(value, shape);
  takeDiagonals(b, term);
  e.terms.push_back(term);
  return true;
}

// Returns nullopt after it has refused the node. Labels are letters, capitals
// too; digits are free for the dimensions of ellipses.
static std::optional<Equation> readEquation(Node &node) {
  std::string equation = node.getString("equation", "");
  equation.erase(std::remove(equation.begin(), equation.end(), ' '),
                 equation.end());
  auto refuse = [&](const Twine &why) -> std::optional<Equation> {
    (void)node.refuse("equation '" + equation + "' " + why);
    return std::nullopt;
  };
  auto [left, right] = StringRef(equation).split("->");
  SmallVector<StringRef> lists;
  left.split(lists, ',');
  if (int64_t(lists.size()) != node.numInputs())
    return refuse("does not have one term per input");
  Equation e;
  int64_t widest = 0;
  for (auto [i, list] : llvm::enumerate(lists)) {
    if (failed(node.expectFloat(node.input(i))))
      return std::nullopt;
    if (!readTerm(node, e, list, i, widest))
      return refuse("does not fit the shape of input " + Twine(i));
  }
  std::string result = equation.find("->") == std::string::npos
                           ? implicitResult(lists)
                           : right.str();
  auto out = expanded(result, widest);
  if (!out)
    return refuse("has an ellipsis of too many dimensions");
  for (char label : *out)
    if (!e.sizes.count(label) || llvm::count(*out, label) != 1)
      return refuse("has a label in its result that no input has, or twice");
  e.out = *out;
  return e;
}

// ---- the contraction ----

// Contracts two terms; `kept` are the labels that are needed afterwards. Labels
// fall into four classes: in both terms and kept (batch), in the first only
// (rows), in the second only (columns), in both but not kept (inner).
// Transposes bring the terms into the form of one batched product. The result's
// labels are batch, rows, columns, in this order; the last transpose puts them
// into the order that the equation asks for.
static FailureOr<Term> contract(Node &node, const Equation &e, Term first,
                                Term second, const std::string &kept) {
  Emitter &b = node.b;
  sumAlone(b, first, kept + second.labels);
  sumAlone(b, second, kept + first.labels);
  std::string batch, rows, columns, inner;
  for (char label : first.labels)
    (!has(second.labels, label) ? rows
     : has(kept, label)         ? batch
                                : inner) += label;
  for (char label : second.labels)
    if (!has(first.labels, label))
      columns += label;
  if (failed(node.checkShape(e.shapeOf(batch + rows + columns))))
    return failure();
  // B×R×I times B×I×C; a class without labels has size 1.
  Shape shape = e.shapeOf(batch), lhsShape = shape, rhsShape = shape;
  lhsShape.append({e.count(rows), e.count(inner)});
  rhsShape.append({e.count(inner), e.count(columns)});
  shape.append({e.count(rows), e.count(columns)});
  Value lhs = b.reshape(order(b, first, batch + rows + inner), lhsShape);
  Value rhs = b.reshape(order(b, second, batch + inner + columns), rhsShape);
  Value result = b.matmul(lhs, rhs, shape);
  return Term{b.reshape(result, e.shapeOf(batch + rows + columns)),
              batch + rows + columns};
}

// From left to right, as in torch without opt_einsum: no search for a cheaper
// order.
static LogicalResult einsum(Node &node) {
  if (failed(node.expectInputs(1, std::max<int64_t>(1, node.numInputs()))))
    return failure();
  for (int64_t i = 0; i < node.numInputs(); ++i)
    if (!node.has(i))
      return node.refuse("input " + Twine(i) + " is missing");
  Emitter &b = node.b;
  std::optional<Equation> e = readEquation(node);
  if (!e)
    return failure();
  // `kept` holds what the result and later operands need; everything else is
  // summed at once.
  Term all = e->terms[0];
  for (size_t i = 1; i < e->terms.size(); ++i) {
    std::string kept = e->out;
    for (const Term &later : ArrayRef(e->terms).drop_front(i + 1))
      kept += later.labels;
    FailureOr<Term> next = contract(node, *e, all, e->terms[i], kept);
    if (failed(next))
      return failure();
    all = *next;
  }
  sumAlone(b, all, e->out);
  // Dimensions of size 1 under an ellipsis were dropped.
  std::string present;
  for (char label : e->out)
    if (has(all.labels, label))
      present += label;
  return node.result(b.reshape(order(b, all, present), e->shapeOf(e->out)));
}

void frontend::registerEinsum(HandlerTable &table) {
  table.add("Einsum", 12, einsum);
}
