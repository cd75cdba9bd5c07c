// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A recursive descent over the text, which torch's exporter writes for an
// extent that follows from others. Powers bind stronger than products, these
// stronger than sums, and all are read from the left.
#include "frontends/onnx/DimensionExpression.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace fsdpc;

// Returns nullopt where the result does not fit or is not whole.
static std::optional<int64_t> raise(int64_t base, int64_t exponent) {
  int64_t result = 1;
  if (exponent < 0 || exponent > 62)
    return std::nullopt;
  for (int64_t i = 0; i < exponent; ++i)
    if (llvm::MulOverflow(result, base, result))
      return std::nullopt;
  return result;
}

static std::optional<int64_t> apply(StringRef sign, int64_t a, int64_t b) {
  int64_t result;
  if (sign == "+")
    return llvm::AddOverflow(a, b, result) ? std::nullopt
                                           : std::optional(result);
  if (sign == "-")
    return llvm::SubOverflow(a, b, result) ? std::nullopt
                                           : std::optional(result);
  if (sign == "*")
    return llvm::MulOverflow(a, b, result) ? std::nullopt
                                           : std::optional(result);
  if (sign == "**")
    return raise(a, b);
  if (sign == "max")
    return std::max(a, b);
  if (sign == "min")
    return std::min(a, b);
  if (b <= 0)
    return std::nullopt;
  int64_t quotient = llvm::divideFloorSigned(a, b);
  int64_t rest = a - quotient * b;
  if (sign == "//")
    return quotient;
  if (sign == "%")
    return rest;
  return rest == 0 ? std::optional(quotient) : std::nullopt; // "/"
}

namespace {

// Parentheses nest at most so deep; a model may hold any text.
constexpr int kMostNesting = 32;

class Expression {
public:
  // Names have the values of `dims`. Without it the text is only read, and each
  // value is 1.
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

  // Takes one of the signs, or returns an empty text. A sign that another one
  // begins with stands after it.
  StringRef takeOneOf(ArrayRef<StringRef> signs) {
    for (StringRef sign : signs)
      if (take(sign))
        return sign;
    return {};
  }

  std::optional<int64_t> combine(StringRef sign, std::optional<int64_t> a,
                                 std::optional<int64_t> b) const {
    if (!a || !b)
      return std::nullopt;
    return dims ? apply(sign, *a, *b) : 1;
  }

  std::optional<int64_t> sum() {
    std::optional<int64_t> value = product();
    while (value) {
      StringRef sign = takeOneOf({"+", "-"});
      if (sign.empty())
        break;
      value = combine(sign, value, product());
    }
    return value;
  }

  std::optional<int64_t> product() {
    std::optional<int64_t> value = power();
    while (value) {
      StringRef sign = takeOneOf({"//", "/", "*", "%"});
      if (sign.empty())
        break;
      value = combine(sign, value, power());
    }
    return value;
  }

  std::optional<int64_t> power() {
    bool isNegative = take("-");
    std::optional<int64_t> value = atom();
    if (value && take("**"))
      value = combine("**", value, atom());
    return isNegative ? combine("-", 0, value) : value;
  }

  // Returns the value up to the closing parenthesis; the opening one is taken
  // already. A function combines the arguments between the two.
  std::optional<int64_t> parenthesised(StringRef function) {
    std::optional<int64_t> value =
        ++nesting > kMostNesting ? std::nullopt : sum();
    while (value && !function.empty() && take(","))
      value = combine(function, value, sum());
    --nesting;
    return take(")") ? value : std::nullopt;
  }

  std::optional<int64_t> atom() {
    if (take("("))
      return parenthesised({});
    rest = rest.ltrim();
    auto isPartOfName = [](char c) { return llvm::isAlnum(c) || c == '_'; };
    StringRef word = rest.take_while(isPartOfName);
    rest = rest.drop_front(word.size());
    int64_t number;
    if (!word.getAsInteger(10, number))
      return number;
    if (word.empty() || llvm::isDigit(word.front()))
      return std::nullopt;
    for (auto [name, function] :
         {std::pair{"max", "max"}, {"min", "min"}, {"mod", "%"}})
      if (word.equals_insensitive(name) && take("("))
        return parenthesised(function);
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

// An unknown name ends an evaluation, so names are collected without values.
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
