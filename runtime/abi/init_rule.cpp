// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the rules by one table, and computes their scales as torch does: with
// fan_in for kaiming, with both fans for xavier, and a uniform law of the same
// variance as the normal one.
#include "runtime/abi/init_rule.h"

#include "runtime/support/concat.h"

#include <algorithm>
#include <cfloat>
#include <charconv>
#include <cmath>

namespace fsdpc {
namespace {

// The form of a rule: how many numbers it has, and the values of those that the
// text may leave out.
struct Form {
  InitRule::Kind kind;
  const char *name;
  const char *numbers; // for the list of forms in the error
  size_t least, most;
  std::array<double, 4> defaults;
};

constexpr Form forms[] = {
    {InitRule::zeros, "zeros", "", 0, 0, {}},
    {InitRule::ones, "ones", "", 0, 0, {}},
    {InitRule::constant, "constant", "(x)", 1, 1, {}},
    {InitRule::normal, "normal", "(mean,std)", 2, 2, {}},
    {InitRule::truncatedNormal,
     "trunc_normal",
     "(mean,std[,low,high])",
     2,
     4,
     {0, 1, -2, 2}},
    {InitRule::uniform, "uniform", "(low,high)", 2, 2, {}},
    {InitRule::xavierUniform, "xavier_uniform", "[(gain)]", 0, 1, {1}},
    {InitRule::xavierNormal, "xavier_normal", "[(gain)]", 0, 1, {1}},
    {InitRule::kaimingUniform, "kaiming_uniform", "[(slope)]", 0, 1, {0}},
    {InitRule::kaimingNormal, "kaiming_normal", "[(slope)]", 0, 1, {0}},
    {InitRule::orthogonal, "orthogonal", "[(gain)]", 0, 1, {1}},
};

Error noForm() {
  std::string all;
  for (const Form &form : forms)
    all += (all.empty() ? "" : ", ") + std::string(form.name) + form.numbers;
  return inputError("is none of " + all);
}

// Reads a number between spaces. Parameters are f32, so it must be finite
// there.
bool readNumber(const std::string &text, double &number) {
  size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  if (begin == std::string::npos)
    return false;
  const char *last = text.data() + end + 1;
  auto [behind, fault] = std::from_chars(text.data() + begin, last, number);
  return fault == std::errc() && behind == last && std::abs(number) <= FLT_MAX;
}

// Splits "name(1,2)" into the name and the numbers.
bool split(const std::string &text, std::string &name,
           std::vector<double> &numbers) {
  size_t open = text.find('(');
  name = text.substr(0, open);
  if (open == std::string::npos)
    return true;
  if (text.back() != ')')
    return false;
  std::string inner = text.substr(open + 1, text.size() - open - 2);
  for (size_t at = 0; at <= inner.size();) {
    size_t comma = std::min(inner.find(',', at), inner.size());
    if (!readNumber(inner.substr(at, comma - at), numbers.emplace_back()))
      return false;
    at = comma + 1;
  }
  return true;
}

} // namespace

Result<InitRule> parseInitRule(const std::string &text) {
  std::string name;
  std::vector<double> numbers;
  if (!split(text, name, numbers))
    return noForm();
  for (const Form &form : forms) {
    if (name != form.name)
      continue;
    if (numbers.size() < form.least || numbers.size() > form.most)
      return noForm();
    InitRule rule{form.kind, form.defaults};
    std::copy(numbers.begin(), numbers.end(), rule.numbers.begin());
    auto [mean, deviation, low, high] = rule.numbers;
    if (form.kind == InitRule::truncatedNormal &&
        !(deviation > 0 && low < high))
      return inputError("needs a std above 0 and a low end below the high one");
    return rule;
  }
  return noForm();
}

// torch counts a neuron's inputs and outputs by the first two axes; the others
// are the window of a convolution.
Result<InitRule> ruleForShape(const InitRule &rule,
                              const std::vector<int64_t> &shape) {
  if (rule.kind < InitRule::xavierUniform)
    return rule;
  double elements = 1;
  for (int64_t size : shape)
    elements *= double(size);
  if (shape.size() < 2 || elements == 0)
    return inputError(
        "needs a parameter with two axes at least and no empty one");
  if (rule.kind == InitRule::orthogonal) {
    if (elements > double(mostOrthogonal))
      return inputError(
          concat("is for parameters of up to ", mostOrthogonal, " elements"));
    return rule;
  }
  double inputs = elements / double(shape[0]);
  double outputs = elements / double(shape[1]), number = rule.numbers[0];
  bool isXavier = rule.kind == InitRule::xavierUniform ||
                  rule.kind == InitRule::xavierNormal;
  double deviation = isXavier ? number * std::sqrt(2 / (inputs + outputs))
                              : std::sqrt(2 / (1 + number * number) / inputs);
  if (rule.kind == InitRule::xavierNormal ||
      rule.kind == InitRule::kaimingNormal)
    return InitRule{InitRule::normal, {0, deviation}};
  double bound = std::sqrt(3.0) * deviation; // a uniform law of that deviation
  return InitRule{InitRule::uniform, {-bound, bound}};
}

} // namespace fsdpc
