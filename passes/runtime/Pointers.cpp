// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Turns tensor values into pointers: a memory space, a symbol and a byte
// offset. Views are resolved to the value that owns the memory, whose place is
// either a planned offset in the arena or memory behind a symbol. Code that
// only the runtime calls (optimizers, rows of attention) is outlined here as
// well.
#include "passes/runtime/Pointers.h"

#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/dialects/fsdp/SymbolNames.h"
#include "compiler/dialects/fsdp/Tokens.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/dialects/nn/Strided.h"
#include "runtime/abi/norm_digits.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/OperationSupport.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

// `bytes` is how far the op may reach from the address. It is what verify-rt
// orders and bounds, so it must cover the whole extent of a strided value.
PointerBuilder::PointerBuilder(SymbolTable &symbols,
                               const OwnersOfMemory &owners, OpBuilder &builder)
    : symbols(symbols), owners(owners), builder(builder) {
  for (auto op : cast<ModuleOp>(symbols.getOp()).getOps<rt::ConstantOp>())
    constants.try_emplace(op.getValue(),
                          FlatSymbolRefAttr::get(op.getSymNameAttr()));
}

Value PointerBuilder::pointer(Location loc, rt::Space space,
                              FlatSymbolRefAttr symbol, int64_t offset,
                              int64_t bytes, IntegerAttr at) {
  auto of64 = [&](int64_t value) { return builder.getI64IntegerAttr(value); };
  return rt::PointerOp::create(builder, loc,
                               rt::PointerType::get(builder.getContext()),
                               rt::SpaceAttr::get(builder.getContext(), space),
                               symbol, of64(offset), of64(bytes), at);
}

// Equal constants share one symbol, which has their value.
FlatSymbolRefAttr PointerBuilder::constant(nn::ConstantOp op) {
  FlatSymbolRefAttr &known = constants[op.getValueAttr()];
  if (!known) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(cast<ModuleOp>(symbols.getOp()).getBody());
    auto symbol = rt::ConstantOp::create(builder, op.getLoc(), "constant",
                                         op.getValueAttr());
    symbols.insert(symbol);
    known = FlatSymbolRefAttr::get(symbol.getSymNameAttr());
  }
  return known;
}

Value PointerBuilder::whole(Location loc, FlatSymbolRefAttr name) {
  auto layout = symbols.lookup<fsdp::LayoutOp>(name.getAttr());
  int64_t bytes = layout.getElements() * nn::elementBytes(layout.getCompute());
  return pointer(loc, rt::Space::whole, name, 0, bytes);
}

// Returns the value that owns the memory of `value`, and the byte offset of
// `value` in it, through views and ops that work in place.
static std::pair<Value, int64_t> throughViews(Value value) {
  int64_t offset = 0;
  while (auto view = value.getDefiningOp<nn::ViewOpInterface>()) {
    offset += view.getViewOffset() * nn::elementBytes(value.getType());
    value = view.getViewSource();
  }
  return {value, offset};
}

// Returns the place of the factor's weight among those of the module.
static int64_t numberOfWeight(fsdp::LossFactorOp factor) {
  int64_t number = 0;
  auto module = factor->getParentOfType<ModuleOp>();
  for (auto weight : module.getOps<fsdp::LossWeightOp>()) {
    if (weight.getSymName() == factor.getWeight())
      break;
    ++number;
  }
  return number;
}

Value PointerBuilder::get(Location loc, Value value) {
  // A strided value spans more than its own elements, hence the extent and not
  // the number of elements.
  int64_t bytes = nn::extentOf(value) * nn::elementBytes(value.getType());
  auto [root, offset] = throughViews(value);
  if (auto argument = dyn_cast<BlockArgument>(root)) {
    auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
    auto name = function.getArgAttrOfType<StringAttr>(
        argument.getArgNumber(), fsdp::FSDPDialect::kInputAttr);
    auto symbol = FlatSymbolRefAttr::get(name.getContext(),
                                         fsdp::symbolOfInput(name, symbols));
    return pointer(loc, rt::Space::input, symbol, offset, bytes);
  }
  Operation *op = root.getDefiningOp();
  if (auto whole = dyn_cast<fsdp::ReplicatedOp>(op))
    return pointer(loc, rt::Space::whole, whole.getLayoutAttr(), offset, bytes);
  if (auto load = dyn_cast<fsdp::LoadOp>(op))
    return pointer(loc, rt::Space::buffer, load.getSymbolAttr(), offset, bytes);
  if (isa<fsdp::RandomOp>(op))
    return pointer(loc, rt::Space::random, {}, offset, bytes);
  // The scale lies behind the four random numbers, then the weight.
  if (isa<fsdp::LossScaleOp>(op))
    return pointer(loc, rt::Space::random, {}, 16 + offset, bytes);
  if (isa<fsdp::MicrobatchWeightOp>(op))
    return pointer(loc, rt::Space::random, {}, 20 + offset, bytes);
  // Then the factors of means, in the order of their weights.
  if (auto factor = dyn_cast<fsdp::LossFactorOp>(op))
    return pointer(loc, rt::Space::random, {},
                   24 + 4 * numberOfWeight(factor) + offset, bytes);
  if (auto constantOp = dyn_cast<nn::ConstantOp>(op))
    return pointer(loc, rt::Space::constant, constant(constantOp), offset,
                   bytes);
  // The start of a gather or fetch has the offsets of the wait's results.
  if (Value token = fsdp::awaitedToken(op))
    op = token.getDefiningOp();
  auto offsets =
      op->getAttrOfType<DenseI64ArrayAttr>(fsdp::FSDPDialect::kOffsetsAttr);
  assert(offsets && "verify-memory lets no unplanned value through");
  unsigned number = cast<OpResult>(root).getResultNumber();
  if (auto gather = dyn_cast<fsdp::AllGatherStartOp>(op))
    return pointer(loc, rt::Space::gathered,
                   cast<FlatSymbolRefAttr>(gather.getLayouts()[number]), offset,
                   bytes, builder.getI64IntegerAttr(offsets[number]));
  FlatSymbolRefAttr layout = owners.lookup(root);
  return pointer(loc, layout ? rt::Space::gradient : rt::Space::arena, layout,
                 offsets[number] + offset, bytes);
}

// Inputs keep their tensor types on the symbols, since the function loses its
// arguments when it has been converted.
void PointerBuilder::declareInputs(func::FuncOp function) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPoint(function);
  for (BlockArgument argument : function.getArguments()) {
    auto attribute = [&](StringRef name) {
      return function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(),
                                                    name);
    };
    auto name = function.getArgAttrOfType<StringAttr>(
        argument.getArgNumber(), fsdp::FSDPDialect::kInputAttr);
    std::string symbol = fsdp::symbolOfInput(name, symbols);
    // @evaluate reads the inputs of @microbatch.
    if (symbols.lookup<rt::InputOp>(symbol))
      continue;
    auto input = rt::InputOp::create(builder, argument.getLoc(), symbol,
                                     argument.getType(),
                                     attribute(fsdp::FSDPDialect::kBoundAttr),
                                     attribute(fsdp::FSDPDialect::kIgnoredAttr),
                                     /*bucket_types=*/nullptr);
    symbols.insert(input);
  }
}

// The region is cloned, not moved: the op still stands in @update until the
// converter erases all ops of the function.
func::FuncOp PointerBuilder::outline(Operation *op, StringRef name) {
  Region &region = op->getRegion(0);
  auto *yield = region.front().getTerminator();
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(cast<ModuleOp>(symbols.getOp()).getBody());
  auto kernel = func::FuncOp::create(
      builder, op->getLoc(), name,
      FunctionType::get(op->getContext(), region.getArgumentTypes(),
                        yield->getOperandTypes()));
  kernel.setPrivate();
  kernel->setAttr("nn.kernel", builder.getUnitAttr());
  // Also on member sums, which are called like optimizers.
  kernel->setAttr("nn.optimizer", builder.getUnitAttr());
  IRMapping mapping;
  region.cloneInto(&kernel.getBody(), mapping);
  Operation *cloned = kernel.getBody().front().getTerminator();
  builder.setInsertionPoint(cloned);
  func::ReturnOp::create(builder, yield->getLoc(), cloned->getOperands());
  cloned->erase();
  return kernel;
}

// An unsummed gradient is in the compute type.
static void setGradientType(func::FuncOp kernel, fsdp::LayoutOp layout) {
  if (fsdp::isUnsummed(layout))
    kernel->setAttr("nn.gradient", layout.getComputeAttr());
}

FlatSymbolRefAttr PointerBuilder::outlineOptimizer(fsdp::OptimizerOp op) {
  func::FuncOp kernel = outline(op, "optimizer");
  // If the compute type is narrower than f32 and replicated, the kernel also
  // writes that copy, unless it is the parameter itself.
  auto layout = symbols.lookup<fsdp::LayoutOp>(op.getLayout());
  setGradientType(kernel, layout);
  if (fsdp::keepsWhole(layout, "compute") && !layout.getNoMaster())
    kernel->setAttr("nn.compute", layout.getComputeAttr());
  return share(kernel, "nn.optimizer");
}

FlatSymbolRefAttr PointerBuilder::outlineSums(fsdp::MemberSumsOp op) {
  return share(outline(op, "member_sums"), "nn.optimizer");
}

Value PointerBuilder::numbersFrom(Location loc, Value numbers, int64_t first,
                                  int64_t count) {
  auto [root, offset] = throughViews(numbers);
  auto offsets = root.getDefiningOp()->getAttrOfType<DenseI64ArrayAttr>(
      fsdp::FSDPDialect::kOffsetsAttr);
  assert(offsets && "verify-memory lets no unplanned value through");
  constexpr int64_t bytes = sizeof(double);
  return arena(loc, offsets[0] + offset + bytes * first, bytes * count);
}

Value PointerBuilder::sumsOf(fsdp::OptimizerOp op) {
  if (!op.getSums())
    return {};
  auto layout = symbols.lookup<fsdp::LayoutOp>(op.getLayout());
  int64_t members = layout.getMembers().size();
  return numbersFrom(op.getLoc(), op.getSums(), *op.getFirst() * normDigits,
                     op.getSumsPerMember() * members * normDigits);
}

Value PointerBuilder::factorsOf(fsdp::OptimizerOp op) {
  if (!op.getFactors())
    return {};
  return numbersFrom(
      op.getLoc(), op.getFactors(), *op.getFirstFactor(),
      fsdp::factorsOf(symbols.lookup<fsdp::LayoutOp>(op.getLayout()), symbols));
}

// Removes the attributes that record where the op came from, so that equal
// layers of a model share one kernel.
FlatSymbolRefAttr PointerBuilder::outlineRows(Operation *attention) {
  if (attention->hasAttr(nn::NNDialect::kLibraryAttr))
    return {};
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(cast<ModuleOp>(symbols.getOp()).getBody());
  auto kernel = func::FuncOp::create(
      builder, attention->getLoc(), "attention_rows",
      FunctionType::get(attention->getContext(), attention->getOperandTypes(),
                        attention->getResultTypes()));
  kernel.setPrivate();
  kernel->setAttr("nn.kernel", builder.getUnitAttr());
  kernel->setAttr("nn.rows", builder.getUnitAttr());
  builder.setInsertionPointToStart(kernel.addEntryBlock());
  Operation *copy = builder.clone(*attention);
  copy->setOperands(kernel.getArguments());
  for (NamedAttribute attribute : llvm::to_vector(copy->getDiscardableAttrs()))
    copy->removeDiscardableAttr(attribute.getName());
  func::ReturnOp::create(builder, attention->getLoc(), copy->getResults());
  return share(kernel, "nn.rows");
}

// Compares the kernel with all functions of the module that have the same mark.
// Structure decides, not names, so equal optimizers and equal layers end up
// with one kernel each. The element type of the extra copy is an attribute and
// is compared separately.
FlatSymbolRefAttr PointerBuilder::share(func::FuncOp kernel, StringRef mark) {
  // Linear in the functions; a program has few with such a mark.
  for (auto other : kernel->getParentOfType<ModuleOp>().getOps<func::FuncOp>())
    if (other != kernel && other->hasAttr(mark) &&
        other->getAttr("nn.compute") == kernel->getAttr("nn.compute") &&
        other->getAttr("nn.gradient") == kernel->getAttr("nn.gradient") &&
        OperationEquivalence::isRegionEquivalentTo(
            &other.getBody(), &kernel.getBody(),
            OperationEquivalence::IgnoreLocations)) {
      kernel.erase();
      return FlatSymbolRefAttr::get(other.getSymNameAttr());
    }
  symbols.insert(kernel);
  return FlatSymbolRefAttr::get(kernel.getSymNameAttr());
}
