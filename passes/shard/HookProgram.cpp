// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads a hook of the user's, --reduce-hook=FILE.mlir:@FUNCTION. The function
// is inlined for gradients of many shapes, so it may hold only ops that do the
// same to each element; and its ops must be those that kernels have code for.
#include "passes/shard/HookOps.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ParseModule.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace fsdpc::passes {
namespace {

// One element stands for all, so the function need not be generic over shapes.
bool isOneElement(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  return tensor && tensor.getShape() == ArrayRef<int64_t>{1};
}

bool isGradient(Type type) {
  return isOneElement(type) && getElementTypeOrSelf(type).isF32();
}

LogicalResult checkSignature(func::FuncOp function) {
  if (function.isExternal() || !function.getBody().hasOneBlock())
    return function.emitOpError(
        "is not a valid hook: it needs a body of one block");
  if (function.getNumArguments() != 1 || function.getNumResults() != 1 ||
      !isGradient(function.getArgumentTypes()[0]))
    return function.emitOpError()
           << "has type " << function.getFunctionType()
           << "; a hook takes a gradient and returns one, as tensor<1xf32>, "
              "which stands for every shape";
  if (!isGradient(function.getResultTypes()[0]))
    return function.emitOpError()
           << "changes the gradient's type to " << function.getResultTypes()[0]
           << "; a hook returns tensor<1xf32>, and '--reduce-dtype' is the "
              "type on the wire";
  return success();
}

LogicalResult checkBody(func::FuncOp function) {
  for (Operation &op : function.front().without_terminator()) {
    auto constant = dyn_cast<nn::ConstantOp>(op);
    if (!constant && !isa<nn::ElementwiseOpInterface>(op))
      return op.emitError() << "'" << op.getName()
                            << "' is not elementwise; a hook has constants and "
                               "elementwise ops of 'nn'";
    if (!llvm::all_of(op.getResultTypes(), isOneElement))
      return op.emitError() << "'" << op.getName() << "' has a value of type "
                            << op.getResult(0).getType()
                            << "; the values of a hook have one element";
    if (constant && !isa<DenseElementsAttr>(constant.getValueAttr()))
      return op.emitError("is a constant that is not written out");
  }
  return success();
}

} // namespace

func::FuncOp functionOf(const fsdp::ReduceHook &hook, ModuleOp module) {
  return module.lookupSymbol<func::FuncOp>(hook.function);
}

OwningOpRef<ModuleOp> parseHookProgram(const fsdp::ReduceHook &hook,
                                       MLIRContext *context) {
  // The text was read when options were parsed, so a module is compiled from
  // the same file that its options name.
  OwningOpRef<ModuleOp> module = nn::parseModule(hook.text, hook.file, context);
  if (!module)
    return nullptr;
  func::FuncOp function = functionOf(hook, *module);
  if (!function) {
    emitError(FileLineColLoc::get(context, hook.file, 1, 1))
        << "there is no function '@" << hook.function
        << "' in the file of --reduce-hook";
    return nullptr;
  }
  if (failed(checkSignature(function)) || failed(checkBody(function)) ||
      failed(nn::verifyUserFunction(function,
                                    [](unsigned, StringRef) { return false; })))
    return nullptr;
  return module;
}

} // namespace fsdpc::passes
