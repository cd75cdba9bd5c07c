// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Each step of a program has a value of its own, which later steps read. An op
// is a few lines of index arithmetic here, since a microbatch has few targets
// beside what a step of training computes.
#include "runtime/numeric/weight_program.h"
#include "runtime/abi/plan_shapes.h"
#include "runtime/abi/weight_ops.h"
#include "runtime/support/concat.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

namespace fsdpc::runtime {
namespace {

using Shape = std::vector<int64_t>;

size_t countOf(const Shape &shape) { return size_t(elementsOf(shape, 1)); }

// Row-major strides, in elements.
Shape stridesOf(const Shape &shape) {
  Shape strides(shape.size(), 1);
  for (size_t axis = shape.size(); axis-- > 1;)
    strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

// Calls `visit(element, place)` for each element of `shape` in order. `place`
// is begin + Σ index · strides.
template <typename Visit>
void walk(const Shape &shape, int64_t begin, const Shape &strides,
          const Visit &visit) {
  Shape index(shape.size(), 0);
  int64_t place = begin;
  for (size_t element = 0, count = countOf(shape); element < count; ++element) {
    visit(element, size_t(place));
    for (size_t axis = shape.size(); axis-- > 0;) {
      place += strides[axis];
      if (++index[axis] < shape[axis])
        break;
      place -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
}

using Unary = double (*)(double);
using Binary = double (*)(double, double);

#define FSDPC_WEIGHT_UNARY(name, value)                                        \
  {name, [](double x) -> double { return value; }},
const std::map<std::string, Unary> unaries = {
    FSDPC_WEIGHT_UNARY_OPS(FSDPC_WEIGHT_UNARY)};
#undef FSDPC_WEIGHT_UNARY

#define FSDPC_WEIGHT_BINARY(name, field, value)                                \
  {name, [](double x, double y) -> double { return value; }},
const std::map<std::string, Binary> binaries = {
    FSDPC_WEIGHT_BINARY_OPS(FSDPC_WEIGHT_BINARY)};
#undef FSDPC_WEIGHT_BINARY

const std::map<std::string, Binary> predicates = {
    {"eq", [](double x, double y) { return double(x == y); }},
    {"ne", [](double x, double y) { return double(x != y); }},
    {"lt", [](double x, double y) { return double(x < y); }},
    {"le", [](double x, double y) { return double(x <= y); }},
    {"gt", [](double x, double y) { return double(x > y); }},
    {"ge", [](double x, double y) { return double(x >= y); }}};

const std::map<std::string, Binary> reductions = {
    {"sum", binaries.at("add")},
    {"prod", binaries.at("mul")},
    {"max", binaries.at("maximum")},
    {"min", binaries.at("minimum")}};

// Returns true if every element of a slice lies in what it is a slice of.
bool lies(const Shape &part, const Shape &whole, const Shape &numbers) {
  size_t rank = whole.size();
  if (part.size() != rank || numbers.size() != 2 * rank)
    return false;
  for (size_t axis = 0; axis < rank; ++axis) {
    int64_t first = numbers[axis], stride = numbers[rank + axis];
    if (first < 0 || first >= whole[axis])
      return false;
    // Larger strides would overflow the product.
    if (part[axis] > 1 && (stride < -whole[axis] || stride > whole[axis]))
      return false;
    int64_t last = part[axis] > 1 ? first + (part[axis] - 1) * stride : first;
    if (last < 0 || last >= whole[axis])
      return false;
  }
  return true;
}

} // namespace

// The compiler has verified the ops, so that only damage is found here. What is
// checked is all that decides which memory a run touches.
Status WeightInterpreter::check(size_t number) const {
  const WeightStep &step = program->steps[number];
  auto malformed = [&](const char *what) {
    return inputError(concat("malformed manifest in the program: step ", number,
                             " of a loss's weight, '", step.op, "', ", what));
  };
  const WeightOp *op = findWeightOp(step.op);
  if (!op)
    return malformed("is unknown");
  if (op->operands < 0 ? step.operands.empty()
                       : step.operands.size() != size_t(op->operands))
    return malformed("has another number of operands");
  for (int32_t operand : step.operands)
    if (operand < 0 || size_t(operand) >= number)
      return malformed("has an operand that does not come before it");
  constexpr int64_t most = int64_t(1) << 28;
  if (int64_t elements = elementsOf(step.shape, 1);
      elements < 0 || elements > most)
    return malformed("has a shape out of range");
  size_t rank = step.shape.size();
  auto isAxis = [&](int64_t axis) { return axis >= 0 && size_t(axis) < rank; };
  bool hasAxes = std::all_of(step.numbers.begin(), step.numbers.end(), isAxis);
  auto sameShape = [&](size_t which) {
    return shapeOf(number, which) == step.shape;
  };
  bool fits = true;
  if (step.op == "constant")
    fits = step.values.size() == 1 || step.values.size() == countOf(step.shape);
  else if (step.op == "iota")
    fits = step.numbers.size() == 1 && hasAxes;
  else if (step.op == "reshape")
    fits = countOf(shapeOf(number, 0)) == countOf(step.shape);
  else if (step.op == "broadcast")
    fits = shapeOf(number, 0).size() <= rank;
  else if (step.op == "transpose")
    fits = step.numbers.size() == rank && hasAxes &&
           shapeOf(number, 0).size() == rank;
  else if (step.op == "slice")
    fits = lies(step.shape, shapeOf(number, 0), step.numbers);
  else if (step.op == "pad")
    fits = lies(shapeOf(number, 0), step.shape, step.numbers);
  else if (step.op == "concat")
    fits = step.numbers.size() == 1 && hasAxes;
  else if (step.op == "reduce")
    fits = hasAxes && shapeOf(number, 0).size() == rank &&
           reductions.count(step.kind);
  else if (step.op == "take_along_axis")
    fits = rank > 0 && sameShape(1) && shapeOf(number, 0).size() == rank;
  else if (step.op == "embedding")
    fits =
        rank > 0 && shapeOf(number, 0).size() == 2 &&
        shapeOf(number, 0)[1] == step.shape[rank - 1] &&
        shapeOf(number, 1) == Shape(step.shape.begin(), step.shape.end() - 1);
  else if (step.op == "cmp")
    fits = predicates.count(step.kind) && sameShape(0) && sameShape(1);
  else
    for (size_t which = 0; which < step.operands.size(); ++which)
      fits &= sameShape(which);
  // Extents of moved axes.
  for (size_t axis = 0; fits && axis < rank; ++axis) {
    int64_t extent = step.shape[axis];
    if (step.op == "broadcast") {
      const Shape &from = shapeOf(number, 0);
      size_t missing = rank - from.size();
      fits = axis < missing || from[axis - missing] == 1 ||
             from[axis - missing] == extent;
    } else if (step.op == "transpose") {
      fits = shapeOf(number, 0)[size_t(step.numbers[axis])] == extent;
    } else if (step.op == "reduce") {
      bool reduced = std::count(step.numbers.begin(), step.numbers.end(),
                                int64_t(axis)) == 1;
      fits = reduced ? extent == 1 : shapeOf(number, 0)[axis] == extent;
    } else if (step.op == "take_along_axis") {
      fits =
          axis + 1 == rank ? extent == 1 : shapeOf(number, 0)[axis] == extent;
    } else if (step.op == "concat") {
      int64_t sum = 0;
      for (size_t which = 0; which < step.operands.size(); ++which) {
        const Shape &from = shapeOf(number, which);
        fits = fits && from.size() == rank;
        sum += fits ? from[axis] : 0;
        fits =
            fits && (axis == size_t(step.numbers[0]) || from[axis] == extent);
      }
      fits = fits && (axis != size_t(step.numbers[0]) || sum == extent);
    }
  }
  return fits ? Status() : malformed("does not fit its operands");
}

Status WeightInterpreter::open(const WeightProgram &opened) {
  program = &opened;
  values.clear();
  if (opened.steps.empty() || countOf(opened.steps.back().shape) != 1)
    return inputError("malformed manifest in the program: the weight of a loss "
                      "is not one number");
  for (size_t number = 0; number < opened.steps.size(); ++number) {
    FSDPC_TRY(check(number));
    const WeightStep &step = opened.steps[number];
    values.emplace_back(countOf(step.shape));
    if (step.op != "constant")
      continue;
    for (size_t i = 0; i < values.back().size(); ++i)
      values.back()[i] = step.values[step.values.size() == 1 ? 0 : i];
  }
  return {};
}

std::vector<WeightInterpreter::Value> WeightInterpreter::inputs() {
  std::vector<Value> inputs;
  for (size_t number = 0; number < values.size(); ++number)
    if (program->steps[number].op == "input")
      inputs.push_back({program->steps[number].kind, &values[number]});
  return inputs;
}

double WeightInterpreter::run() {
  for (size_t number = 0; number < values.size(); ++number)
    compute(number);
  return values.back()[0];
}

void WeightInterpreter::compute(size_t number) {
  using Function = void (WeightInterpreter::*)(size_t);
#define FSDPC_WEIGHT_OTHER(name, operands, field, function)                    \
  {name, &WeightInterpreter::function},
  static const std::map<std::string, Function> functions = {
      FSDPC_WEIGHT_OTHER_OPS(FSDPC_WEIGHT_OTHER)};
#undef FSDPC_WEIGHT_OTHER
  const WeightStep &step = program->steps[number];
  if (auto found = functions.find(step.op); found != functions.end())
    (this->*found->second)(number);
  else if (auto unary = unaries.find(step.op); unary != unaries.end())
    computeElements(number, unary->second);
  else
    computeElements(number, binaries.at(step.op));
  // Integers by 0 are 0, as in the program.
  if ((step.op == "div" || step.op == "mod") && step.kind == "i")
    for (size_t i = 0; i < values[number].size(); ++i)
      values[number][i] =
          operand(number, 1)[i] == 0 ? 0 : std::trunc(values[number][i]);
}

// All operands have the shape of the result.
void WeightInterpreter::computeElements(size_t number, Unary unary) {
  for (size_t i = 0; i < values[number].size(); ++i)
    values[number][i] = unary(operand(number, 0)[i]);
}

void WeightInterpreter::computeElements(size_t number, Binary binary) {
  for (size_t i = 0; i < values[number].size(); ++i)
    values[number][i] = binary(operand(number, 0)[i], operand(number, 1)[i]);
}

void WeightInterpreter::compare(size_t number) {
  computeElements(number, predicates.at(program->steps[number].kind));
}

void WeightInterpreter::select(size_t number) {
  for (size_t i = 0; i < values[number].size(); ++i)
    values[number][i] = operand(number, operand(number, 0)[i] != 0 ? 1 : 2)[i];
}

void WeightInterpreter::cast(size_t number) {
  const std::string &kind = program->steps[number].kind;
  for (size_t i = 0; i < values[number].size(); ++i) {
    double x = operand(number, 0)[i];
    values[number][i] = kind == "b"   ? double(x != 0)
                        : kind == "i" ? std::trunc(x)
                                      : x;
  }
}

void WeightInterpreter::count(size_t number) {
  const WeightStep &step = program->steps[number];
  Shape strides(step.shape.size(), 0);
  strides[size_t(step.numbers[0])] = 1;
  walk(step.shape, 0, strides, [&](size_t element, size_t place) {
    values[number][element] = double(place);
  });
}

void WeightInterpreter::copy(size_t number) {
  values[number] = operand(number, 0);
}

// A slice gathers the elements of a part, a pad scatters them among zeros.
void WeightInterpreter::move(size_t number) {
  const WeightStep &step = program->steps[number];
  bool scatters = step.op == "pad";
  const Shape &part = scatters ? shapeOf(number, 0) : step.shape;
  Shape strides = stridesOf(scatters ? step.shape : shapeOf(number, 0));
  int64_t begin = 0;
  for (size_t axis = 0; axis < strides.size(); ++axis) {
    begin += step.numbers[axis] * strides[axis];
    strides[axis] *= step.numbers[strides.size() + axis];
  }
  std::vector<double> &to = values[number];
  const std::vector<double> &from = operand(number, 0);
  if (scatters)
    std::fill(to.begin(), to.end(), 0);
  walk(part, begin, strides, [&](size_t element, size_t place) {
    if (scatters)
      to[place] = from[element];
    else
      to[element] = from[place];
  });
}

void WeightInterpreter::broadcast(size_t number) {
  const Shape &shape = program->steps[number].shape;
  const Shape &from = shapeOf(number, 0);
  Shape own = stridesOf(from), strides(shape.size(), 0);
  size_t missing = shape.size() - from.size();
  for (size_t axis = 0; axis < from.size(); ++axis)
    if (from[axis] != 1)
      strides[missing + axis] = own[axis];
  walk(shape, 0, strides, [&](size_t element, size_t place) {
    values[number][element] = operand(number, 0)[place];
  });
}

void WeightInterpreter::transpose(size_t number) {
  const WeightStep &step = program->steps[number];
  Shape own = stridesOf(shapeOf(number, 0)), strides(step.shape.size());
  for (size_t axis = 0; axis < strides.size(); ++axis)
    strides[axis] = own[size_t(step.numbers[axis])];
  walk(step.shape, 0, strides, [&](size_t element, size_t place) {
    values[number][element] = operand(number, 0)[place];
  });
}

void WeightInterpreter::concatenate(size_t number) {
  const WeightStep &step = program->steps[number];
  Shape strides = stridesOf(step.shape);
  int64_t begin = 0;
  size_t axis = size_t(step.numbers[0]);
  for (size_t which = 0; which < step.operands.size(); ++which) {
    const Shape &from = shapeOf(number, which);
    walk(from, begin, strides, [&](size_t element, size_t place) {
      values[number][place] = operand(number, which)[element];
    });
    begin += strides[axis] * from[axis];
  }
}

void WeightInterpreter::reduce(size_t number) {
  const WeightStep &step = program->steps[number];
  const Shape &from = shapeOf(number, 0);
  Shape strides = stridesOf(step.shape);
  for (int64_t axis : step.numbers)
    strides[size_t(axis)] = 0;
  constexpr double infinity = std::numeric_limits<double>::infinity();
  double start = step.kind == "sum"    ? 0
                 : step.kind == "prod" ? 1
                 : step.kind == "max"  ? -infinity
                                       : infinity;
  std::vector<double> &to = values[number];
  std::fill(to.begin(), to.end(), start);
  Binary combine = reductions.at(step.kind);
  walk(from, 0, strides, [&](size_t element, size_t place) {
    to[place] = combine(to[place], operand(number, 0)[element]);
  });
}

// An index outside of the row gives NaN, as in nn.take_along_axis.
void WeightInterpreter::takeAlongAxis(size_t number) {
  int64_t width = shapeOf(number, 0).back();
  std::vector<double> &to = values[number];
  for (size_t row = 0; row < to.size(); ++row) {
    double index = operand(number, 1)[row];
    to[row] = index >= 0 && index < double(width)
                  ? operand(number, 0)[row * size_t(width) + size_t(index)]
                  : std::numeric_limits<double>::quiet_NaN();
  }
}

// Samples were checked to be rows of the table; what a program computes from
// them was not.
void WeightInterpreter::lookUp(size_t number) {
  const Shape &table = shapeOf(number, 0);
  size_t width = size_t(table[1]);
  std::vector<double> &to = values[number];
  for (size_t row = 0; row < operand(number, 1).size(); ++row) {
    double index = operand(number, 1)[row];
    auto begin = to.begin() + int64_t(row * width);
    if (index >= 0 && index < double(table[0]))
      std::copy_n(operand(number, 0).begin() + int64_t(index) * table[1], width,
                  begin);
    else
      std::fill_n(begin, width, std::numeric_limits<double>::quiet_NaN());
  }
}

} // namespace fsdpc::runtime
