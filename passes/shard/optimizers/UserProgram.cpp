// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks a user's optimizer before anything depends on it. The program runs
// once per element, in vectors and in any order, so it may hold only scalar
// arithmetic; and only ops for which hosts and GPUs have code, since an error
// about vectors of a kernel would mean nothing to its author.
#include "passes/shard/optimizers/UserProgram.h"

#include "compiler/dialects/nn/ParseModule.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringExtras.h"

#include <set>

using namespace mlir;

namespace fsdpc::passes {
namespace {

// On an argument of the function, as in `{fsdp.state = "momentum"}`.
constexpr llvm::StringLiteral kStateAttr = "fsdp.state";
constexpr unsigned kElements = 2, kNumbers = 3; // besides the states

// Requires a module that holds one function and nothing else.
func::FuncOp functionOf(ModuleOp module) {
  return *module.getOps<func::FuncOp>().begin();
}

// The arguments of fsdp.optimizer's region: parameter, gradient and states,
// then learning rate, step and decay.
LogicalResult checkSignature(func::FuncOp function) {
  unsigned count = function.getNumArguments();
  if (count < kElements + kNumbers)
    return function.emitOpError()
           << "has " << count
           << " arguments; the program of an optimizer takes the parameter, "
              "the "
              "gradient and its states (f32), then lr, step and decay (f64)";
  unsigned states = count - kElements - kNumbers;
  Type f32 = Float32Type::get(function.getContext());
  Type f64 = Float64Type::get(function.getContext());
  std::set<StringRef> names;
  for (unsigned i = 0; i < count; ++i) {
    Type expected = i < kElements + states ? f32 : f64;
    if (function.getArgumentTypes()[i] != expected)
      return emitError(function.getArgument(i).getLoc())
             << "argument " << i << " has type "
             << function.getArgumentTypes()[i] << ", expected " << expected
             << ": parameter, gradient and states are f32, then lr, step and "
                "decay f64";
    if (i < kElements || i >= kElements + states)
      continue;
    auto name = function.getArgAttrOfType<StringAttr>(i, kStateAttr);
    if (!name || name.empty())
      return emitError(function.getArgument(i).getLoc())
             << "argument " << i << " is a state and needs a name: {"
             << kStateAttr << " = \"momentum\"}";
    if (!names.insert(name.getValue()).second)
      return emitError(function.getArgument(i).getLoc())
             << "state '" << name.getValue() << "' is there twice";
  }
  if (function.getNumResults() != 1 + states ||
      !llvm::all_of(function.getResultTypes(),
                    [&](Type type) { return type == f32; }))
    return function.emitOpError()
           << "returns " << function.getNumResults()
           << " values; expected an f32 for the parameter and one for each of "
           << states << " states";
  return success();
}

// i1 of comparisons included. Indices are not: they have no width of their own
// in memory or vectors.
bool isScalar(Type type) {
  return type.isF32() || type.isF64() || type.isSignlessInteger();
}

// The ops of math that both the host's kernels and the GPU's have code for.
constexpr StringRef kFunctions[] = {
    "absf",      "ceil",  "copysign", "cos",  "erf",   "exp",
    "expm1",     "floor", "fma",      "log",  "log1p", "powf",
    "roundeven", "sin",   "sqrt",     "tanh", "trunc"};

LogicalResult checkBody(func::FuncOp function) {
  if (!function.getBody().hasOneBlock())
    return function.emitOpError("has branches; the program of an optimizer is "
                                "the same for all elements: use arith.select");
  for (Operation &op : function.front().without_terminator()) {
    OperationName name = op.getName();
    bool isMath = name.getDialectNamespace() == "math";
    if ((!isMath && name.getDialectNamespace() != "arith") ||
        op.getNumRegions() != 0)
      return op.emitError()
             << "'" << name
             << "' is not pointwise: the program of an optimizer has scalar "
                "ops of 'arith' and 'math'";
    if (isMath && !llvm::is_contained(kFunctions, name.stripDialect()))
      return op.emitError()
             << "'" << name << "' has no code; of 'math' an optimizer may use "
             << llvm::join(ArrayRef(kFunctions), ", ");
    SmallVector<Type> types(op.getOperandTypes());
    llvm::append_range(types, op.getResultTypes());
    for (Type type : types)
      if (!isScalar(type))
        return op.emitError()
               << "'" << name << "' has a value of type " << type
               << "; an element's values are f32, f64 or integers";
  }
  return success();
}

} // namespace

UserProgram parseUserProgram(const fsdp::OptimizerChoice &choice,
                             MLIRContext *context) {
  auto module = std::make_shared<OwningOpRef<ModuleOp>>(
      nn::parseModule(choice.text, choice.file, context));
  if (!*module)
    return nullptr;
  Block *body = (*module)->getBody();
  // Exactly one, so that nobody has to name it, and so that calls have nothing
  // to call.
  auto isFunction = [](Operation &op) {
    return isa<func::FuncOp>(op) && !cast<func::FuncOp>(op).isExternal();
  };
  if (!llvm::hasSingleElement(*body) || !isFunction(body->front())) {
    emitError(FileLineColLoc::get(context, choice.file, 1, 1))
        << "the file of an optimizer has one 'func.func' with a body, and "
           "nothing else";
    return nullptr;
  }
  func::FuncOp function = functionOf(**module);
  unsigned end = function.getNumArguments() - kNumbers;
  auto isState = [&](unsigned argument, StringRef name) {
    return argument >= kElements && argument < end && name == kStateAttr;
  };
  if (failed(checkSignature(function)) || failed(checkBody(function)) ||
      failed(nn::verifyUserFunction(function, isState)))
    return nullptr;
  return module;
}

fsdp::StateNames stateNames(const UserProgram &program) {
  fsdp::StateNames names;
  func::FuncOp function = functionOf(**program);
  for (unsigned i = kElements; i < function.getNumArguments() - kNumbers; ++i)
    names.push_back(
        function.getArgAttrOfType<StringAttr>(i, kStateAttr).getValue());
  return names;
}

Results copyProgram(const UserProgram &program, Scalars s, Arguments in) {
  Block &body = functionOf(**program).front();
  Results values = {in.parameter, in.gradient};
  llvm::append_range(values, in.states);
  // Neither factors nor sums: a user's program takes none.
  values.append({in.lr, in.step, in.decay});
  IRMapping mapping;
  mapping.map(body.getArguments(), values);
  for (Operation &op : body.without_terminator())
    s.builder.clone(op, mapping);
  Results results;
  for (Value value : body.getTerminator()->getOperands())
    results.push_back(mapping.lookup(value));
  return results;
}

} // namespace fsdpc::passes
