// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Simplifies index arithmetic. The rules are local: a quotient is split into
// the terms that the divisor divides and the rest, whose value range often
// decides the rest. Atoms are interned, so equal subexpressions have equal
// numbers, and indices are compared term by term.
#include "compiler/analysis/kernels/IndexExpr.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace fsdpc::analysis;

// Any total order: expressions are keys of sets.
bool IndexExpr::operator<(const IndexExpr &other) const {
  if (constant != other.constant)
    return constant < other.constant;
  return std::lexicographical_compare(terms.begin(), terms.end(),
                                      other.terms.begin(), other.terms.end());
}

// Variables are never equal to each other, even if their ranges are. The depth
// and the use of the lane are inherited from what the atom is computed from.
// Linear in the atoms, of which a kernel has few.
int IndexSpace::intern(Atom atom) {
  for (auto [id, known] : llvm::enumerate(atoms))
    if (known.kind == atom.kind && atom.kind != Atom::Variable &&
        known.inner == atom.inner && known.divisor == atom.divisor &&
        known.tensor == atom.tensor && known.index == atom.index &&
        known.wraps == atom.wraps &&
        (atom.kind != Atom::Clamp || (known.range.low == atom.range.low &&
                                      known.range.high == atom.range.high)))
      return id;
  atom.depth = std::max(atom.depth, depth(atom.inner));
  atom.usesLane |= usesLane(atom.inner);
  for (const IndexExpr &e : atom.index) {
    atom.depth = std::max(atom.depth, depth(e));
    atom.usesLane |= usesLane(e);
  }
  atoms.push_back(std::move(atom));
  return atoms.size() - 1;
}

IndexExpr IndexSpace::single(int id, int64_t coefficient) {
  IndexExpr result;
  result.terms.push_back({id, coefficient});
  return result;
}

IndexExpr IndexSpace::variable(int depth, int64_t extent, bool isLane) {
  if (extent == 1)
    return 0;
  Atom atom;
  atom.kind = Atom::Variable;
  atom.depth = depth;
  atom.usesLane = isLane;
  atom.range = {0, extent - 1};
  return single(intern(atom));
}

// Atoms that exist keep the ranges that they were made with.
void IndexSpace::setRange(const IndexExpr &variable, IndexRange range) {
  if (!variable.isConstant())
    atoms[variable.terms.front().first].range = range;
}

// Merges the two sorted lists of terms.
IndexExpr IndexSpace::add(const IndexExpr &a, const IndexExpr &b) {
  IndexExpr result;
  result.constant = a.constant + b.constant;
  const auto *x = a.terms.begin(), *y = b.terms.begin();
  while (x != a.terms.end() || y != b.terms.end()) {
    if (y == b.terms.end() || (x != a.terms.end() && x->first < y->first)) {
      result.terms.push_back(*x++);
    } else if (x == a.terms.end() || y->first < x->first) {
      result.terms.push_back(*y++);
    } else {
      if (x->second + y->second != 0)
        result.terms.push_back({x->first, x->second + y->second});
      ++x, ++y;
    }
  }
  recombine(result);
  return result;
}

// Applies k · (e mod c) + k · c · floor(e / c) = k · e, the identity by which a
// reshape followed by its inverse disappears.
void IndexSpace::recombine(IndexExpr &a) {
  for (auto [id, k] : a.terms) {
    if (atoms[id].kind != Atom::Mod)
      continue;
    IndexExpr inner = atoms[id].inner;
    int64_t divisor = atoms[id].divisor;
    IndexExpr quotient = floorDiv(inner, divisor);
    if (quotient.terms.size() != 1 || quotient.constant != 0 ||
        quotient.terms.front().second != 1)
      continue;
    int quotientId = quotient.terms.front().first;
    int64_t expected = k * divisor;
    if (!llvm::is_contained(a.terms, std::make_pair(quotientId, expected)))
      continue;
    IndexExpr rest;
    rest.constant = a.constant;
    for (auto term : a.terms)
      if (term.first != id && term.first != quotientId)
        rest.terms.push_back(term);
    // The sum may hold another such pair, which add() finds.
    a = add(rest, scale(inner, k));
    return;
  }
}

IndexExpr IndexSpace::scale(const IndexExpr &a, int64_t factor) {
  if (factor == 0)
    return 0;
  IndexExpr result = a;
  result.constant *= factor;
  for (auto &term : result.terms)
    term.second *= factor;
  return result;
}

// The constant is divided with rounding down, so the rest's constant is not
// negative.
void IndexSpace::split(const IndexExpr &a, int64_t divisor, IndexExpr &quotient,
                       IndexExpr &rest) const {
  for (auto [id, k] : a.terms) {
    if (k % divisor == 0)
      quotient.terms.push_back({id, k / divisor});
    else
      rest.terms.push_back({id, k});
  }
  quotient.constant = llvm::divideFloorSigned(a.constant, divisor);
  rest.constant = a.constant - quotient.constant * divisor;
}

std::pair<IndexExpr, IndexExpr> IndexSpace::divide(const IndexExpr &rest,
                                                   int64_t divisor) {
  IndexRange bounds = range(rest);
  // The rest is its own remainder.
  if (bounds.low >= 0 && bounds.high < divisor)
    return {IndexExpr(0), rest};

  // (g·A + B) / (g·m) = A / m if 0 <= B < g.
  for (auto [id, k] : rest.terms) {
    int64_t g = std::abs(k);
    if (g == 1 || divisor % g != 0)
      continue;
    IndexExpr multiple, below;
    split(rest, g, multiple, below);
    IndexRange belowRange = range(below);
    if (belowRange.low < 0 || belowRange.high >= g)
      continue;
    IndexExpr remainder = mod(multiple, divisor / g);
    return {floorDiv(multiple, divisor / g), add(scale(remainder, g), below)};
  }

  // floor(floor(e / d) / c) = floor(e / (d·c)).
  Atom quotient;
  quotient.kind = Atom::Div;
  quotient.inner = rest;
  quotient.divisor = divisor;
  if (rest.terms.size() == 1 && rest.constant == 0 &&
      rest.terms.front().second == 1) {
    const Atom &inner = atoms[rest.terms.front().first];
    if (inner.kind == Atom::Div) {
      quotient.inner = inner.inner;
      quotient.divisor = inner.divisor * divisor;
    }
  }
  quotient.range = {llvm::divideFloorSigned(bounds.low, divisor),
                    llvm::divideFloorSigned(bounds.high, divisor)};
  Atom remainder;
  remainder.kind = Atom::Mod;
  remainder.inner = rest;
  remainder.divisor = divisor;
  remainder.range = {0, divisor - 1};
  IndexExpr q = single(intern(quotient));
  return {q, single(intern(remainder))};
}

// The multiples of the divisor leave the quotient exactly; only the rest is
// divided.
IndexExpr IndexSpace::floorDiv(const IndexExpr &a, int64_t divisor) {
  if (divisor == 1)
    return a;
  IndexExpr quotient, rest;
  split(a, divisor, quotient, rest);
  return add(quotient, divide(rest, divisor).first);
}

IndexExpr IndexSpace::mod(const IndexExpr &a, int64_t divisor) {
  if (divisor == 1)
    return 0;
  IndexExpr quotient, rest;
  split(a, divisor, quotient, rest);
  return divide(rest, divisor).second;
}

// No clamp is needed if the value is in bounds anyway.
IndexExpr IndexSpace::clamp(const IndexExpr &a, IndexRange bounds) {
  IndexRange own = range(a);
  if (own.low >= bounds.low && own.high <= bounds.high)
    return a;
  Atom atom;
  atom.kind = Atom::Clamp;
  atom.inner = a;
  atom.range = bounds;
  return single(intern(atom));
}

// Equal reads of one tensor are one atom, and so one load.
IndexExpr IndexSpace::dynamic(mlir::Value tensor, const Index &index,
                              int64_t size, bool wraps) {
  Atom atom;
  atom.kind = Atom::Dynamic;
  atom.range = {0, size - 1};
  atom.divisor = size;
  atom.tensor = tensor;
  atom.index = index;
  atom.wraps = wraps;
  return single(intern(atom));
}

// Row-major, the last dimension varies fastest.
IndexExpr IndexSpace::linearize(llvm::ArrayRef<IndexExpr> index,
                                llvm::ArrayRef<int64_t> shape) {
  IndexExpr result;
  int64_t stride = 1;
  for (int64_t i = shape.size() - 1; i >= 0; --i) {
    result = add(result, scale(index[i], stride));
    stride *= shape[i];
  }
  return result;
}

Index IndexSpace::delinearize(IndexExpr linear, llvm::ArrayRef<int64_t> shape) {
  Index result(shape.size());
  for (int64_t i = shape.size() - 1; i >= 0; --i) {
    result[i] = mod(linear, shape[i]);
    linear = floorDiv(linear, shape[i]);
  }
  return result;
}

// Interval arithmetic. The bounds are not tight if an atom depends on another.
IndexRange IndexSpace::range(const IndexExpr &a) const {
  IndexRange result = {a.constant, a.constant};
  for (auto [id, k] : a.terms) {
    IndexRange r = atoms[id].range;
    result.low += k > 0 ? k * r.low : k * r.high;
    result.high += k > 0 ? k * r.high : k * r.low;
  }
  return result;
}

int IndexSpace::depth(const IndexExpr &a) const {
  int result = 0;
  for (auto [id, k] : a.terms)
    result = std::max(result, atoms[id].depth);
  return result;
}

bool IndexSpace::usesLane(const IndexExpr &a) const {
  return llvm::any_of(a.terms,
                      [&](auto term) { return atoms[term.first].usesLane; });
}

// Quotients and remainders of the lane have no constant step.
std::optional<int64_t> IndexSpace::laneStride(const IndexExpr &a) const {
  int64_t stride = 0;
  for (auto [id, k] : a.terms) {
    if (!atoms[id].usesLane)
      continue;
    if (atoms[id].kind != Atom::Variable)
      return std::nullopt;
    stride = k;
  }
  return stride;
}

// One quotient of the lane, whose divisor divides everything else in it.
std::optional<int64_t> IndexSpace::laneRun(const IndexExpr &a,
                                           int64_t lanes) const {
  std::optional<int64_t> run;
  for (auto [id, k] : a.terms) {
    const Atom &atom = atoms[id];
    if (!atom.usesLane)
      continue;
    if (run || k != 1 || atom.kind != Atom::Div ||
        !llvm::isPowerOf2_64(atom.divisor) || lanes % atom.divisor ||
        laneStride(atom.inner) != 1 ||
        alignment(atom.inner, lanes) % atom.divisor)
      return std::nullopt;
    run = atom.divisor;
  }
  return run;
}

// The lowest bit that is set in the constant or any coefficient.
int64_t IndexSpace::alignment(const IndexExpr &address, int64_t lanes) const {
  int64_t bits = address.constant;
  for (auto [id, factor] : address.terms) {
    bool isLane = atoms[id].kind == Atom::Variable && atoms[id].usesLane;
    bits |= isLane ? factor * lanes : factor;
  }
  return bits & -bits;
}

void IndexSpace::collectCuts(const IndexExpr &a,
                             llvm::SmallVectorImpl<int64_t> &cuts) const {
  for (auto [id, k] : a.terms) {
    const Atom &atom = atoms[id];
    if (!atom.usesLane || atom.kind == Atom::Variable)
      continue;
    if (atom.kind == Atom::Div || atom.kind == Atom::Mod)
      for (auto [inner, factor] : atom.inner.terms)
        if (atoms[inner].kind == Atom::Variable && atoms[inner].usesLane &&
            atom.divisor % std::abs(factor) == 0)
          cuts.push_back(atom.divisor / std::abs(factor));
    collectCuts(atom.inner, cuts);
    for (const IndexExpr &e : atom.index)
      collectCuts(e, cuts);
  }
}
