// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// mixed-precision: computes in bf16 or f16, with f32 master weights, statistics
// and losses. It follows torch.distributed.fsdp's MixedPrecision(param_dtype=…)
// where that is defined, and otherwise keeps in f32 what torch computes in f32
// with bf16 parameters (ComputeTypes.h). Modules of --keep-f32 compute in f32,
// and cast at their borders.
#include "passes/shard/Passes.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "compiler/options/Options.h"
#include "passes/shard/ComputeTypes.h"
#include "passes/shard/F32Islands.h"
#include "passes/shard/HalfConstants.h"
#include "passes/shard/ReduceHooks.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_MIXEDPRECISION
#include "passes/shard/Passes.h.inc"

using namespace mlir;
using fsdp::FSDPDialect;

namespace {

bool isF32(Type type) { return getElementTypeOrSelf(type).isF32(); }
bool isHalf(Type type) { return nn::isHalf(getElementTypeOrSelf(type)); }

bool comparesDraw(Operation *op) {
  auto precision = dyn_cast<nn::PrecisionOpInterface>(op);
  return precision && precision.computesInF32();
}

// What is stored keeps its type, and counts as data as other constants do.
bool viewsBytes(Operation *op) {
  auto view = dyn_cast<fsdp::ViewOp>(op);
  return view && getElementTypeOrSelf(view.getFlat()).isUnsignedInteger(8);
}

bool isBackward(Operation *op) {
  return op->hasAttr(FSDPDialect::kBackwardAttr);
}

// Converts one function. Ops are visited in program order, so the types of
// operands are final when an op is visited.
class Converter {
public:
  // `half` is the type to compute in.
  Converter(ModuleOp module, Block &body, FloatType half)
      : module(module), body(body), options(fsdp::CompileOptions::of(module)),
        half(half), f32(Float32Type::get(module.getContext())),
        types(options.castInputs) {}

  void run() {
    // The compute type is that of gathered buffers. Master weights stay f32 in
    // their shards, if there are any.
    SymbolTable symbols(module);
    for (auto layout : module.getOps<fsdp::LayoutOp>())
      if (!layout.holdsBytes() && !fsdp::keepsF32(layout, symbols)) {
        layout.setCompute(half);
        layout.setNoMaster(options.master == fsdp::Master::None);
      }
    collectLossTail();
    for (Operation &op : llvm::make_early_inc_range(body.without_terminator()))
      convert(&op);
  }

  int64_t casts = 0;
  F32Islands islands;

private:
  // Returns true for reports of the loss and of metrics.
  static bool reportsScalar(Operation &op) {
    auto output = dyn_cast<fsdp::ReportOutputOp>(op);
    return isa<fsdp::ReportLossOp>(op) || (output && output.isScalar());
  }

  // Collects the primitives of the forward that lead to the loss or a metric
  // and nowhere else. They stay in f32, since the loss is a sum of many terms.
  void collectLossTail() {
    // From the end, so that all users of an op are decided before the op.
    for (Operation &op : llvm::reverse(body.without_terminator())) {
      if (reportsScalar(op)) {
        lossTail.insert(&op);
        continue;
      }
      if (isBackward(&op) || op.use_empty() ||
          !(isa<nn::ElementwiseOpInterface>(op) ||
            op.hasTrait<nn::InLossTail>()))
        continue;
      // Users in the backward do not count: they read what was saved, in f32.
      if (llvm::all_of(op.getUsers(), [&](Operation *user) {
            return isBackward(user) || lossTail.contains(user);
          }))
        lossTail.insert(&op);
    }
  }

  // Returns true if the op is f32 whatever it reads. A loss in bf16 would have
  // two to three digits (in f16 three to four), and running statistics and
  // reports are f32.
  bool isAlwaysF32(Operation *op) const {
    return lossTail.contains(op) || op->hasTrait<fsdp::InF32>() ||
           comparesDraw(op) || computesInF32(options, op);
  }

  // The type in the model's file, if it gives one, overrides the rule.
  bool computesInHalf(Operation *op) const {
    if (auto told = op->getAttrOfType<TypeAttr>(nn::NNDialect::kTypeAttr))
      return nn::isHalf(told.getValue());
    return types.computesInHalf(op);
  }

  // Decides the op's type, casts its operands, and gives its results the type,
  // except for statistics.
  void convert(Operation *op) {
    if (holdsSentinel(op))
      sentinels.insert(op->getResult(0));
    if ((op->getNumOperands() == 0 && !isa<fsdp::FlatOp>(op)) || viewsBytes(op))
      return; // constants, buffers, iota, what is stored: cast where used
    bool isFixed = isAlwaysF32(op);
    bool compute =
        !isFixed && (op->hasTrait<fsdp::InComputeType>() || computesInHalf(op));
    bool readsParameters = types.readsParameters(op);
    bool isKept = !isFixed && op->hasAttr(FSDPDialect::kKeepF32Attr) &&
                  (compute || readsParameters);
    // Before the operands are replaced by casts, which are not followed.
    if (!isFixed)
      types.note(op);
    setTypes(op, compute && !isKept);
    for (OpResult result : op->getResults())
      if (isKept && isF32(result.getType()) && !isStatistic(result))
        types.keep(result);
    if (!compute && !isFixed && !isKept && !isBackward(op))
      islands.add(op, readsParameters);
    if (handsOnSentinels(op) && llvm::any_of(op->getOperands(), [&](Value v) {
          return sentinels.contains(v);
        }))
      sentinels.insert(op->getResult(0));
    // A cast that the conversion has made superfluous disappears, as one from
    // f32 to bf16 of what is bf16 now.
    if (auto cast = dyn_cast<nn::CastOp>(op))
      if (cast.getInput().getType() == cast.getResult().getType()) {
        cast.replaceAllUsesWith(cast.getInput());
        cast.erase();
      }
  }

  // An nn.cast is written by the model: its operand stays, and its result's
  // type is what it asks for.
  void setTypes(Operation *op, bool compute) {
    Type element = compute ? Type(half) : Type(f32);
    for (OpOperand &operand : op->getOpOperands()) {
      Type type = operand.get().getType();
      if ((isF32(type) || isHalf(type)) && !keepsType(op, operand.get()) &&
          !isa<nn::CastOp>(op))
        operand.set(castTo(operand.get(), element, op));
    }
    for (OpResult result : op->getResults())
      if (isF32(result.getType()) && compute && !isStatistic(result))
        result.setType(withElement(result.getType(), half));
  }

  // Returns the value converted to `element`. The cast is inserted before the
  // first use in the forward, and another one in the backward, so that no cast
  // is saved.
  Value castTo(Value value, Type element, Operation *user) {
    if (getElementTypeOrSelf(value.getType()) == element)
      return value;
    // One cast per value, type and direction.
    Value &known = cache[{value, {element, isBackward(user)}}];
    if (known)
      return known;
    if (Value constant = constants.convert(value, element))
      return known = constant;
    Value given = value;
    if (element == half && sentinels.contains(value))
      given = limited(value, user);
    OpBuilder builder(user);
    auto cast = nn::CastOp::create(
        builder, user->getLoc(), withElement(value.getType(), element), given);
    place(cast, user);
    ++casts;
    return known = cast.getResult();
  }

  // An inserted op belongs to the unit that uses its result, so that units stay
  // separate regions of the program.
  static void place(Operation *op, Operation *user) {
    for (StringRef name : {FSDPDialect::kUnitAttr, FSDPDialect::kBackwardAttr})
      if (Attribute attr = user->getAttr(name))
        op->setAttr(name, attr);
  }

  // Limits a value with sentinels to the finite numbers of `half`, of which a
  // cast would make infinities.
  Value limited(Value value, Operation *user) {
    OpBuilder builder(user);
    Type type = value.getType();
    double most =
        APFloat::getLargest(half.getFloatSemantics()).convertToDouble();
    auto bound = [&](double x) {
      Value number = nn::splat(builder, user->getLoc(), type, x);
      place(number.getDefiningOp(), user);
      return number;
    };
    auto atMost = nn::MinimumOp::create(builder, user->getLoc(), type, value,
                                        bound(most));
    auto atLeast = nn::MaximumOp::create(builder, user->getLoc(), type, atMost,
                                         bound(-most));
    place(atMost, user);
    place(atLeast, user);
    return atLeast;
  }

  ModuleOp module;
  Block &body;
  fsdp::CompileOptions options;
  FloatType half, f32;
  ComputeTypes types;
  llvm::DenseSet<Operation *> lossTail;
  // f32 values that hold sentinels of constants.
  llvm::DenseSet<Value> sentinels;
  llvm::DenseMap<std::pair<Value, std::pair<Type, int>>, Value> cache;
  HalfConstants constants;
};

struct MixedPrecision : impl::MixedPrecisionBase<MixedPrecision> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FloatType half = fsdp::floatType(fsdp::CompileOptions::of(module).paramType,
                                     &getContext());
    // Everything is f32 already.
    if (half.isF32())
      return markAllAnalysesPreserved();
    auto functions = fsdp::getForwards(module);
    if (failed(functions))
      return signalPassFailure();
    for (func::FuncOp function : *functions) {
      Converter converter(module, function.front(), half);
      converter.run();
      casts += converter.casts;
      if (function.getName() == FSDPDialect::kMicrobatch)
        converter.islands.write(module);
      eraseDeadConstants(function.front());
      // The types say it from here on.
      for (Operation &op : function.front()) {
        op.removeAttr(FSDPDialect::kKeepF32Attr);
        op.removeAttr(nn::NNDialect::kTypeAttr);
      }
    }
  }

  // Erases constants, and ops on them, that all users read in a converted copy.
  static void eraseDeadConstants(Block &body) {
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(body)))
      if ((isa<nn::ConstantOp>(op) || keepsNumbers(&op)) && op.use_empty())
        op.erase();
  }
};

} // namespace
} // namespace fsdpc::passes
