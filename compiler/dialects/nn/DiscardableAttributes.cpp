// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Verifies discardable attributes against the table of their dialect, and lists
// those of the nn dialect itself. They say where an op comes from, how passes
// want it computed, and what code generation found out about a kernel.
// NNBase.td describes each.
#include "compiler/dialects/nn/DiscardableAttributes.h"

#include "compiler/dialects/nn/Interfaces.h"
#include "compiler/dialects/nn/NNAttributes.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/Strided.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;

namespace fsdpc::nn {

// ---- any dialect ----

static const DiscardableAttribute *find(StringRef name,
                                        ArrayRef<DiscardableAttribute> table) {
  const auto *it = llvm::find_if(
      table, [&](const DiscardableAttribute &row) { return row.name == name; });
  return it == table.end() ? nullptr : it;
}

// Suggests the nearest name of the table, since an unknown attribute is nearly
// always a misspelt one in an edited dump.
static LogicalResult refuseUnknown(Operation *op, StringRef name,
                                   StringRef carrier,
                                   ArrayRef<DiscardableAttribute> table) {
  auto error = emitError(op->getLoc())
               << "there is no attribute '" << name << "' of " << carrier;
  if (!table.empty())
    error << "; did you mean '"
          << llvm::min_element(table,
                               [&](const auto &a, const auto &b) {
                                 return name.edit_distance(a.name) <
                                        name.edit_distance(b.name);
                               })
                 ->name
          << "'?";
  return error;
}

// Checks the value only. The error names the value and what it should have
// been.
static LogicalResult checkForm(Operation *op, NamedAttribute attribute,
                               const DiscardableAttribute &row) {
  if (row.form.matches(attribute.getValue()))
    return success();
  return emitError(op->getLoc())
         << "attribute '" << row.name << "' = " << attribute.getValue()
         << " is not " << row.form.description;
}

LogicalResult verifyDiscardable(Operation *op, NamedAttribute attribute,
                                ArrayRef<DiscardableAttribute> table) {
  StringRef name = attribute.getName();
  const DiscardableAttribute *row = find(name, table);
  if (!row)
    return refuseUnknown(op, name, "ops", table);
  if (!row->place.contains(op))
    return emitError(op->getLoc())
           << "attribute '" << name << "' belongs on " << row->place.description
           << ", not on '" << op->getName() << "'";
  return checkForm(op, attribute, *row);
}

LogicalResult verifyArgumentAttribute(Operation *function,
                                      NamedAttribute attribute,
                                      ArrayRef<DiscardableAttribute> table) {
  StringRef name = attribute.getName();
  const DiscardableAttribute *row = find(name, table);
  if (!row)
    return refuseUnknown(function, name, "arguments", table);
  return checkForm(function, attribute, *row);
}

// Refuses an attribute whose name begins with no dialect, or with one that this
// program does not have. The dialects check those of their own prefixes.
LogicalResult verifyKnownAttributes(Operation *root,
                                    ArrayRef<FormerAttribute> former) {
  auto result = root->walk([&](Operation *op) {
    for (NamedAttribute attribute : op->getDiscardableAttrs()) {
      if (attribute.getNameDialect())
        continue;
      auto error = op->emitOpError("has no attribute '")
                   << attribute.getName().getValue() << "'; ";
      for (const FormerAttribute &row : former)
        if (op->getName().getStringRef() == row.op &&
            attribute.getName() == row.name)
          return error << row.instead, WalkResult::interrupt();
      error << "remove it, or correct its name";
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

LogicalResult
verifyUserFunction(FunctionOpInterface function,
                   llvm::function_ref<bool(unsigned, StringRef)> isRead) {
  auto refuse = [](Location loc, NamedAttribute attribute) {
    return emitError(loc) << "attribute '" << attribute.getName().getValue()
                          << "' means nothing on ";
  };
  constexpr StringRef ending = " of a user's function; remove it";
  for (BlockArgument argument : function.getArguments())
    for (NamedAttribute attribute :
         function.getArgAttrs(argument.getArgNumber()))
      if (!isRead(argument.getArgNumber(), attribute.getName()))
        return refuse(argument.getLoc(), attribute)
               << "argument " << argument.getArgNumber() << ending;
  WalkResult result = function->walk([&](Operation *op) {
    for (NamedAttribute attribute : op->getDiscardableAttrs())
      return refuse(op->getLoc(), attribute)
                 << "'" << op->getName() << "'" << ending,
             WalkResult::interrupt();
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

bool isModule(Operation *op) { return isa<ModuleOp>(op); }
bool isAnyOp(Operation *) { return true; }
bool isUnit(Attribute value) { return isa<UnitAttr>(value); }
bool isString(Attribute value) { return isa<StringAttr>(value); }

bool isStringArray(Attribute value) {
  auto array = dyn_cast<ArrayAttr>(value);
  return array && llvm::all_of(array, llvm::IsaPred<StringAttr>);
}

bool isCount(Attribute value) {
  auto number = dyn_cast<IntegerAttr>(value);
  return number && number.getType().isInteger(64) && number.getInt() >= 0;
}

bool isDuration(Attribute value) {
  auto number = dyn_cast<FloatAttr>(value);
  return number && number.getType().isF64() && number.getValueAsDouble() >= 0;
}

// ---- nn ----

static bool isFunction(Operation *op) { return isa<FunctionOpInterface>(op); }

// Any function op with the mark, so that kernels stay valid when code
// generation replaces func.func.
static bool isKernel(Operation *op) {
  return isFunction(op) && op->hasAttr(NNDialect::kKernelAttr);
}

static bool isLibraryCall(Operation *op) {
  return isa<LibraryCallOpInterface>(op);
}

static bool isLibrary(Attribute value) {
  auto name = dyn_cast<StringAttr>(value);
  return name && llvm::is_contained({"cublaslt", "cudnn", "own", "products"},
                                    name.getValue());
}

// Strides follow from the sources of elements, so only such an op can be
// strided.
static bool movesElements(Operation *op) {
  return isa<ElementSourceOpInterface>(op);
}

static bool isPlacing(Attribute value) {
  auto name = dyn_cast<StringAttr>(value);
  return name && (name == kReadInOperand || name == kWrittenInResult);
}

static bool isFloatType(Attribute value) {
  auto type = dyn_cast<TypeAttr>(value);
  return type && isa<FloatType>(type.getValue());
}

static bool isModules(Attribute value) { return isa<ModulesAttr>(value); }
static bool isGrid(Attribute value) { return isa<GridAttr>(value); }
static bool isPlan(Attribute value) { return isa<KernelPlanAttr>(value); }

// One number of bytes for each buffer of the kernel, in the order of its
// arguments and results.
static bool isAlignments(Attribute value) {
  auto array = dyn_cast<DenseI64ArrayAttr>(value);
  return array && llvm::all_of(array.asArrayRef(),
                               [](int64_t bytes) { return bytes > 0; });
}

// Places and forms that several rows of the table share.
static constexpr AttributePlace ops = {"an op", isAnyOp},
                                functions = {"a function", isFunction},
                                kernels = {"a kernel (a function marked "
                                           "'nn.kernel')",
                                           isKernel};
static constexpr AttributeForm unit = {"a unit attribute", isUnit},
                               floatType = {"a float type", isFloatType};

// The attributes of the nn dialect. A new one needs a row here, or the verifier
// refuses it, and a row in the description of NNBase.td.
static constexpr DiscardableAttribute table[] = {
    {"nn.modules", ops, {"modules", isModules}},
    {"nn.type", ops, floatType},
    {"nn.kernel", functions, unit},
    {"nn.optimizer", kernels, unit},
    {"nn.rows", kernels, unit},
    {"nn.compute", kernels, floatType},
    {"nn.gradient", kernels, floatType},
    {"nn.plan", kernels, {"a kernel plan", isPlan}},
    {"nn.kept", ops, unit},
    {"nn.grid", kernels, {"a grid", isGrid}},
    {"nn.alignments",
     kernels,
     {"an i64 array of positive bytes", isAlignments}},
    {"nn.library",
     {"a library call", isLibraryCall},
     {"one of cublaslt, cudnn, own, products", isLibrary}},
    {"nn.strided",
     {"an op that moves elements", movesElements},
     {"one of operand, result", isPlacing}},
};

ArrayRef<StringRef> NNDialect::originAttributes() {
  static constexpr StringRef names[] = {kModulesAttr, kTypeAttr};
  return names;
}

LogicalResult NNDialect::verifyOperationAttribute(Operation *op,
                                                  NamedAttribute attribute) {
  return verifyDiscardable(op, attribute, table);
}

// The dialect has no attributes of arguments, so each one is unknown.
LogicalResult NNDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                  unsigned,
                                                  NamedAttribute attribute) {
  return verifyArgumentAttribute(op, attribute, {});
}

} // namespace fsdpc::nn
