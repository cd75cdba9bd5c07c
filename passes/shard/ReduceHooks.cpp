// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds and checks hooks on gradients (ReduceHooks.h), after the communication
// hooks of PyTorch's DDP (torch/distributed/algorithms/ddp_comm_hooks). There a
// hook also calls the collective; here it only says what is reduced, so that
// hooks compose and every strategy can schedule the collective.
#include "passes/shard/ReduceHooks.h"

#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Rules.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "passes/shard/HookOps.h"

using namespace mlir;

namespace fsdpc::passes {

using fsdp::FSDPDialect;
using fsdp::ReduceHook;

FailureOr<ReduceHooks> ReduceHooks::of(const fsdp::CompileOptions &options,
                                       MLIRContext *context) {
  ReduceHooks result;
  result.hooks = options.reduceHooks;
  for (const ReduceHook &hook : result.hooks) {
    bool isUsers = hook.kind == ReduceHook::Kind::Program;
    result.programs.push_back(isUsers ? parseHookProgram(hook, context)
                                      : nullptr);
    if (isUsers && !result.programs.back())
      return failure();
  }
  return result;
}

Value ReduceHooks::apply(OpBuilder &builder, Location loc,
                         fsdp::LayoutOp layout, bool keptF32,
                         Value gradient) const {
  // The ops that hooks insert stand between these two.
  Block *block = builder.getInsertionBlock();
  auto end = builder.getInsertionPoint();
  for (auto [index, hook] : llvm::enumerate(hooks)) {
    // The insertion point itself stays; what is new lies between `before` and
    // it.
    Operation *before = end == block->begin() ? nullptr : &*std::prev(end);
    func::FuncOp program;
    if (programs[index])
      program = functionOf(hook, programs[index].get());
    gradient = buildHook(builder, loc, hook, program, gradient);
    auto first = before ? std::next(before->getIterator()) : block->begin();
    for (Operation &op : llvm::make_range(first, end)) {
      op.setAttr(kHookAttr, builder.getI64IntegerAttr(index));
      op.setAttr(FSDPDialect::kUnitAttr, layout.getUnitAttr());
      op.setAttr(FSDPDialect::kBackwardAttr, builder.getUnitAttr());
      if (keptF32)
        op.setAttr(FSDPDialect::kKeepF32Attr, builder.getUnitAttr());
    }
  }
  return gradient;
}

static std::optional<int64_t> hookOf(Operation *op) {
  auto number = op->getAttrOfType<IntegerAttr>(kHookAttr);
  return number ? std::optional(number.getInt()) : std::nullopt;
}

// Returns the only value that the ops of a hook behind `value` read of others,
// beside constants and the like; null if they read several.
static Value sourceOf(Value value, int64_t hook) {
  llvm::SetVector<Value> behind, sources;
  // A worklist: `behind` grows while it is walked, and its entries are unique.
  behind.insert(value);
  for (size_t i = 0; i < behind.size(); ++i) {
    Operation *op = behind[i].getDefiningOp();
    // mixed-precision puts casts of its own between.
    bool isOwn =
        op && (hookOf(op) == hook || (isa<nn::CastOp>(op) && !hookOf(op)));
    if (isOwn)
      behind.insert(op->operand_begin(), op->operand_end());
    // A hook's constants and weights have no operands and are sources of
    // nothing.
    else if (!op || op->getNumOperands() > 0)
      sources.insert(behind[i]);
  }
  return sources.size() == 1 ? sources.front() : Value();
}

SmallVector<int64_t> HookFinder::hooksBehind(Value value) {
  SmallVector<int64_t> numbers;
  while (value) {
    value = behindCopies(value);
    Operation *op = value.getDefiningOp();
    std::optional<int64_t> number = op ? hookOf(op) : std::nullopt;
    if (!number)
      break;
    numbers.push_back(*number);
    value = sourceOf(value, *number);
  }
  return numbers;
}

Value HookFinder::behindCopies(Value value) {
  SmallVector<Value> passed;
  for (Operation *op = value.getDefiningOp();
       isa_and_nonnull<nn::CastOp, nn::CopyOp>(op) && !hookOf(op);
       op = value.getDefiningOp()) {
    auto known = origins.find(value);
    if (known != origins.end()) {
      value = known->second;
      break;
    }
    passed.push_back(value);
    value = op->getOperand(0);
  }
  for (Value copy : passed)
    origins[copy] = value;
  return value;
}

bool computesInF32(const fsdp::CompileOptions &options, Operation *op) {
  std::optional<int64_t> number = hookOf(op);
  if (!number || *number < 0 || *number >= int64_t(options.reduceHooks.size()))
    return false;
  ReduceHook::Kind kind = options.reduceHooks[size_t(*number)].kind;
  return kind == ReduceHook::Kind::Predivide ||
         kind == ReduceHook::Kind::AverageBefore;
}

static LogicalResult missesHook(fsdp::PackOp pack, size_t gradient) {
  return fsdp::broken(pack, "hook")
         << "gradient " << gradient << " of layout '" << pack.getLayout()
         << "' does not pass each --reduce-hook once and in order; they are "
            "the ops with '"
         << kHookAttr << "'";
}

// A cast to the type that the model computes in may have no ops, nor may a
// function that returns what it takes; averaging after the reduction has none,
// and what a reduction sends stands on the layout.
static bool mayBeEmpty(const ReduceHook &hook,
                       const fsdp::CompileOptions &options) {
  return (hook.kind == ReduceHook::Kind::Cast &&
          hook.type == options.paramType) ||
         hook.kind == ReduceHook::Kind::AverageAfter || hook.keepsResidual() ||
         hook.kind == ReduceHook::Kind::Program;
}

LogicalResult verifyHooks(const fsdp::CompileOptions &options,
                          fsdp::PackOp pack, HookFinder &finder) {
  for (auto [index, value] : llvm::enumerate(pack->getOperands())) {
    SmallVector<int64_t> found = finder.hooksBehind(value);
    // `found` has the last first, so the hooks that come first are at its back.
    for (auto [number, hook] : llvm::enumerate(options.reduceHooks)) {
      if (!found.empty() && found.back() == int64_t(number))
        found.pop_back();
      else if (!mayBeEmpty(hook, options))
        return missesHook(pack, index);
    }
    if (!found.empty())
      return missesHook(pack, index);
  }
  return success();
}

} // namespace fsdpc::passes
