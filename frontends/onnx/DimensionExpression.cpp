// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A recursive descent over the text, which torch's exporter writes for an
// extent that follows from others. Products bind stronger than sums, and both
// are read from the left.
#include "frontends/onnx/DimensionExpression.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fsdpc;

namespace {

// Parentheses nest at most so deep; a model may hold any text.
constexpr int kMostNesting = 32;

class Expression {
public:
  // Names have the values of `dims`; without it, all names are 1.
  Expression(StringRef text, const std::map<std::string, int64_t> *dims)
      : rest(text), dims(dims) {}

  std::optional<int64_t> evaluate() {
    std::optional<int64_t> value = sum();
    return rest.trim().empty() ? value : std::nullopt;
  }

  SmallVector<StringRef> names;

private:
  bool take(StringRef sign) {
    rest = rest.ltrim();
    return rest.consume_front(sign);
  }

  std::optional<int64_t> sum() {
    std::optional<int64_t> value = product();
    while (value) {
      bool isSum = take("+");
      if (!isSum && !take("-"))
        break;
      std::optional<int64_t> other = product();
      int64_t result;
      if (!other || (isSum ? llvm::AddOverflow(*value, *other, result)
                           : llvm::SubOverflow(*value, *other, result)))
        return std::nullopt;
      value = result;
    }
    return value;
  }

  std::optional<int64_t> product() {
    std::optional<int64_t> value = atom();
    while (value) {
      bool isQuotient = take("//");
      if (!isQuotient && !take("*"))
        break;
      std::optional<int64_t> other = atom();
      int64_t result;
      if (!other || (isQuotient && *other <= 0) ||
          (!isQuotient && llvm::MulOverflow(*value, *other, result)))
        return std::nullopt;
      value = isQuotient ? llvm::divideFloorSigned(*value, *other) : result;
    }
    return value;
  }

  std::optional<int64_t> atom() {
    if (take("(")) {
      std::optional<int64_t> value =
          ++nesting > kMostNesting ? std::nullopt : sum();
      --nesting;
      return take(")") ? value : std::nullopt;
    }
    rest = rest.ltrim();
    auto isPartOfName = [](char c) { return llvm::isAlnum(c) || c == '_'; };
    StringRef word = rest.take_while(isPartOfName);
    rest = rest.drop_front(word.size());
    int64_t number;
    if (!word.getAsInteger(10, number))
      return number;
    if (word.empty() || llvm::isDigit(word.front()))
      return std::nullopt;
    names.push_back(word);
    if (!dims)
      return 1;
    auto found = dims->find(word.str());
    return found == dims->end() ? std::nullopt : std::optional(found->second);
  }

  StringRef rest;
  const std::map<std::string, int64_t> *dims; // may be null
  int nesting = 0;
};

} // namespace

// An unknown name ends the evaluation, so names are collected with values that
// fit everywhere.
SmallVector<StringRef> frontend::namesInExpression(StringRef text) {
  Expression expression(text, nullptr);
  bool isExpression = expression.evaluate().has_value();
  bool isName =
      expression.names.size() == 1 && expression.names.front() == text.trim();
  if (!isExpression || isName)
    return {};
  return expression.names;
}

std::optional<int64_t>
frontend::evaluateDimension(StringRef text,
                            const std::map<std::string, int64_t> &dims) {
  return Expression(text, &dims).evaluate();
}
