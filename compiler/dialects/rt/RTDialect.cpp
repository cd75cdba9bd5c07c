// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Registration of the rt dialect, and the verifiers of its uses of symbols. Ops
// are defined in RTOpsShard*.cpp, which the build generates. A
// kernel that an op names must be a kernel of the module; all else that can be
// wrong with a program of rt ops is the business of verify-rt.
#include "compiler/dialects/rt/RTDialect.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/DiscardableAttributes.h"
#include "compiler/dialects/rt/LaunchEffects.h"
#include "compiler/dialects/rt/RuntimeCall.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

#include "compiler/dialects/rt/RTAttrInterfaces.cpp.inc"
#include "compiler/dialects/rt/RTDialect.cpp.inc"
#include "compiler/dialects/rt/RTEnums.cpp.inc"
#include "compiler/dialects/rt/RTInterfaces.cpp.inc"
#include "compiler/dialects/rt/RuntimeCall.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "compiler/dialects/rt/RTTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "compiler/dialects/rt/RTAttributes.cpp.inc"

using namespace mlir;
using namespace fsdpc::rt;

void RTDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "compiler/dialects/rt/RTTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "compiler/dialects/rt/RTAttributes.cpp.inc"
      >();
  // mlir-tblgen cuts the ops into shards, which compile side by side.
  registerRTDialectOperations(this);
  // Library ops of nn get their calls here, because nn does not know rt. The
  // dialect depends on nn, so the ops are registered by now.
  attachMatmulCall(getContext());
  attachConvolutionCalls(getContext());
  attachPoolingCalls(getContext());
  attachOutputCall(getContext());
  attachAttentionCalls(getContext());
}

// The dialect has no discardable attributes.
LogicalResult RTDialect::verifyOperationAttribute(Operation *op,
                                                  NamedAttribute attribute) {
  return nn::verifyDiscardable(op, attribute, {});
}

// Nor has it attributes of arguments.
LogicalResult RTDialect::verifyRegionArgAttribute(Operation *op, unsigned,
                                                  unsigned,
                                                  NamedAttribute attribute) {
  return nn::verifyArgumentAttribute(op, attribute, {});
}

LogicalResult PointerOp::verify() {
  if ((getSpace() == Space::gathered) == getAt().has_value())
    return success();
  return emitOpError("points to space '")
         << stringifySpace(getSpace())
         << "'; 'at' belongs to the space 'gathered', which needs it";
}

// Checks that a kernel exists and is marked `nn.kernel`. Its type is not
// checked: pointers carry no shapes.
static LogicalResult verifyKernel(Operation *op, FlatSymbolRefAttr name,
                                  SymbolTableCollection &symbols) {
  auto kernel = symbols.lookupNearestSymbolFrom<func::FuncOp>(op, name);
  if (!kernel || !kernel->hasAttr("nn.kernel"))
    return op->emitOpError("references '")
           << name.getValue() << "', which is not a kernel of this module";
  return success();
}

void fsdpc::rt::addLaunchEffects(
    LaunchOp launch, unsigned operands,
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  for (OpOperand &buffer : launch->getOpOperands())
    if (buffer.getOperandNumber() < operands)
      effects.emplace_back(MemoryEffects::Read::get(), &buffer);
    else
      effects.emplace_back(MemoryEffects::Write::get(), &buffer);
}

// Only the kernel's type tells how many buffers are read, so ODS cannot state
// these effects.
void LaunchOp::getEffects(
    SmallVectorImpl<MemoryEffects::EffectInstance> &effects) {
  auto kernel = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(
      *this, getKernelAttr());
  addLaunchEffects(*this, kernel.getNumArguments(), effects);
}

LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyKernel(*this, getKernelAttr(), symbols);
}

// Only the host has a kernel for rows; a library of the GPU computes them
// itself.
template <typename AttentionOp>
static LogicalResult verifyRows(AttentionOp op,
                                SymbolTableCollection &symbols) {
  FlatSymbolRefAttr rows = op.getRowsAttr();
  return rows ? verifyKernel(op, rows, symbols) : success();
}

LogicalResult AttentionOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyRows(*this, symbols);
}

LogicalResult
AttentionGradOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyRows(*this, symbols);
}

// The kernel is a scalar program of the optimizer (`nn.optimizer`).
LogicalResult MemberSumsOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyKernel(*this, getKernelAttr(), symbols);
}

LogicalResult OptimizerOp::verifySymbolUses(SymbolTableCollection &symbols) {
  return verifyKernel(*this, getKernelAttr(), symbols);
}
