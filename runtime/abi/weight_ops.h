// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops that may stand in the weight of a loss (WeightProgram). The compiler
// writes programs of these ops and the runtime interprets them, in f64. A new
// op is a row here, and one that moves elements is a function of
// WeightInterpreter too.
#pragma once

#include <string_view>

namespace fsdpc {

/// What a step has besides its operands and its shape (WeightStep).
enum class WeightField {
  None,
  Values,      ///< a constant's elements
  Axis,        ///< numbers: one axis
  Permutation, ///< numbers: an axis per axis
  Places,      ///< numbers: the offsets, then the strides
  Reduction,   ///< numbers: the axes; and the kind of the reduction
  Predicate,   ///< kind: the comparison
  Rounding     ///< kind: the type to which the result is rounded
};

/// Expands ROW(name, value) for each function of one number, `x`.
#define FSDPC_WEIGHT_UNARY_OPS(ROW)                                            \
  ROW("neg", -x)                                                               \
  ROW("abs", std::abs(x))                                                      \
  ROW("not", x == 0)                                                           \
  ROW("copy", x)                                                               \
  ROW("stop_gradient", x)                                                      \
  ROW("relu", x < 0 ? 0 : x)                                                   \
  ROW("floor", std::floor(x))                                                  \
  ROW("round", std::nearbyint(x))                                              \
  ROW("exp", std::exp(x))                                                      \
  ROW("expm1", std::expm1(x))                                                  \
  ROW("log", std::log(x))                                                      \
  ROW("log1p", std::log1p(x))                                                  \
  ROW("sqrt", std::sqrt(x))                                                    \
  ROW("rsqrt", 1 / std::sqrt(x))                                               \
  ROW("tanh", std::tanh(x))                                                    \
  ROW("erf", std::erf(x))                                                      \
  ROW("sin", std::sin(x))                                                      \
  ROW("cos", std::cos(x))                                                      \
  ROW("atan", std::atan(x))                                                    \
  ROW("sigmoid", 1 / (1 + std::exp(-x)))

/// Expands ROW(name, field, value) for each function of two, `x` and `y`.
#define FSDPC_WEIGHT_BINARY_OPS(ROW)                                           \
  ROW("add", None, x + y)                                                      \
  ROW("sub", None, x - y)                                                      \
  ROW("mul", None, (x * y))                                                    \
  ROW("div", Rounding, x / y)                                                  \
  ROW("mod", Rounding, x - std::floor(x / y) * y)                              \
  ROW("pow", None, std::pow(x, y))                                             \
  ROW("maximum", None, x > y ? x : y)                                          \
  ROW("minimum", None, x < y ? x : y)                                          \
  ROW("and", None, x != 0 && y != 0)                                           \
  ROW("or", None, x != 0 || y != 0)                                            \
  ROW("xor", None, (x != 0) != (y != 0))

/// Expands ROW(name, operands, field, function) for each other op. The function
/// is the one of WeightInterpreter; -1 stands for one operand or more.
#define FSDPC_WEIGHT_OTHER_OPS(ROW)                                            \
  ROW("input", 0, None, keep)                                                  \
  ROW("constant", 0, Values, keep)                                             \
  ROW("iota", 0, Axis, count)                                                  \
  ROW("reshape", 1, None, copy)                                                \
  ROW("broadcast", 1, None, broadcast)                                         \
  ROW("transpose", 1, Permutation, transpose)                                  \
  ROW("slice", 1, Places, move)                                                \
  ROW("pad", 1, Places, move)                                                  \
  ROW("concat", -1, Axis, concatenate)                                         \
  ROW("reduce", 1, Reduction, reduce)                                          \
  ROW("cast", 1, Rounding, cast)                                               \
  ROW("cmp", 2, Predicate, compare)                                            \
  ROW("select", 3, None, select)                                               \
  ROW("take_along_axis", 2, None, takeAlongAxis)                               \
  ROW("embedding", 2, None, lookUp)

struct WeightOp {
  std::string_view name; ///< of the nn dialect, or "input"
  int operands;          ///< -1: one or more
  WeightField field;
};

#define FSDPC_WEIGHT_UNARY(name, value) {name, 1, WeightField::None},
#define FSDPC_WEIGHT_BINARY(name, field, value) {name, 2, WeightField::field},
#define FSDPC_WEIGHT_OTHER(name, operands, field, function)                    \
  {name, operands, WeightField::field},
constexpr WeightOp weightOps[] = {
    FSDPC_WEIGHT_UNARY_OPS(FSDPC_WEIGHT_UNARY)
        FSDPC_WEIGHT_BINARY_OPS(FSDPC_WEIGHT_BINARY)
            FSDPC_WEIGHT_OTHER_OPS(FSDPC_WEIGHT_OTHER)};
#undef FSDPC_WEIGHT_UNARY
#undef FSDPC_WEIGHT_BINARY
#undef FSDPC_WEIGHT_OTHER

/// Returns the op of that name, or null.
constexpr const WeightOp *findWeightOp(std::string_view name) {
  for (const WeightOp &op : weightOps)
    if (op.name == name)
      return &op;
  return nullptr;
}

} // namespace fsdpc
