// convert-to-rt: turns planned ops into calls of the runtime, one function at a
// time, in program order. Tensors become pointers by their planned offsets.
// Every transition between streams gets an event, whether needed or not;
// elide-events removes those that order nothing.
#include "compiler/analysis/Slots.h"
#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/RunningStatistics.h"
#include "compiler/dialects/rt/RuntimeCall.h"
#include "passes/runtime/Passes.h"
#include "passes/runtime/Pointers.h"

#include "llvm/ADT/TypeSwitch.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_CONVERTTORT
#include "passes/runtime/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::analysis;

namespace {

// Gives each call the attributes of its op that a trace shows. Only work is
// marked: events and pointers take no time of their own. A listener, so that no
// case of the converter can forget it.
struct CallAnnotator : OpBuilder::Listener {
  void notifyOperationInserted(Operation *call,
                               OpBuilder::InsertPoint) override {
    auto command = dyn_cast<rt::CommandOpInterface>(call);
    if (!source || !command || !command.isWork())
      return;
    for (StringRef name :
         {fsdp::FSDPDialect::kUnitAttr, fsdp::FSDPDialect::kBackwardAttr,
          fsdp::FSDPDialect::kBytesAttr, fsdp::FSDPDialect::kFlopsAttr})
      if (Attribute value = source->getAttr(name))
        call->setAttr(name, value);
  }
  Operation *source = nullptr;
};

// Converts one function op by op, and erases the ops that it has converted.
class FunctionConverter : rt::CallBuilder {
public:
  // Converts in place. `symbols` is the module's, and gets the symbols that
  // calls need.
  FunctionConverter(func::FuncOp function, SymbolTable &symbols)
      : function(function), rtBuilder(function.getContext(), &annotator),
        pointers(symbols, rtBuilder) {}

  // The ranges (offset, bytes) of the arena to poison, by the op after which
  // they are dead.
  using DeadMemory =
      DenseMap<Operation *, SmallVector<std::pair<int64_t, int64_t>>>;
  LogicalResult run(const DeadMemory &deadMemory);

private:
  LogicalResult convert(Operation *op);
  LogicalResult convertCollective(Operation *op);
  void gather(fsdp::AllGatherStartOp start, ValueRange destinations);
  LogicalResult convertUpdate(Operation *op);
  LogicalResult convertOptimizer(Operation *op);
  void record(rt::Stream stream, int event) {
    rt::EventRecordOp::create(rtBuilder, here, stream, event);
  }
  void wait(rt::Stream stream, int event) {
    rt::EventWaitOp::create(rtBuilder, here, stream, event);
  }
  // Makes `later` wait for all that has been enqueued on `earlier`. Each call
  // takes a fresh event number, so that no event is recorded twice.
  void order(rt::Stream earlier, rt::Stream later) {
    record(earlier, events);
    wait(later, events++);
  }
  // In the order of the values.
  SmallVector<Value> pointersOf(ValueRange values) {
    SmallVector<Value> result;
    for (Value value : values)
      result.push_back(pointers.get(here, value));
    return result;
  }

  // The interface through which ops of the dialect nn build their calls
  // (rt::RuntimeCallOpInterface). An absent operand is a null value and gives a
  // null pointer.
  OpBuilder &builder() override { return rtBuilder; }
  Location location() override { return here; }
  Value pointer(Value value) override {
    return value ? pointers.get(here, value) : Value();
  }
  FlatSymbolRefAttr outlineRows(Operation *op) override {
    return pointers.outlineRows(op);
  }

  func::FuncOp function;
  CallAnnotator annotator;
  OpBuilder rtBuilder;
  PointerBuilder pointers;
  // The location of the op that is being converted.
  Location here = function.getLoc();
  // The number of the next event.
  int events = 0;
  DenseMap<Value, int> tokenEvents; // the event for which a token's wait waits
};

// A secondary shard is kept before the gather's event is recorded: until then
// nothing overwrites the destination.
void FunctionConverter::gather(fsdp::AllGatherStartOp start,
                               ValueRange destinations) {
  ArrayAttr layouts = start.getLayoutsAttr();
  if (start.getFromSecondary()) {
    rt::GatherSecondaryOp::create(rtBuilder, here, layouts, destinations);
    return;
  }
  rt::AllGatherOp::create(rtBuilder, here, layouts, destinations);
  if (!start.getKeepSecondary())
    return;
  auto keep =
      rt::KeepSecondaryOp::create(rtBuilder, here, layouts, destinations);
  // The bytes of the start are those that are gathered.
  keep->removeAttr(fsdp::FSDPDialect::kBytesAttr);
}

// A start waits for compute to reach it, runs on its own stream and records an
// event; the wait makes compute wait for this event.
LogicalResult FunctionConverter::convertCollective(Operation *op) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](fsdp::AllGatherStartOp start) {
        order(rt::Stream::compute, rt::Stream::gather);
        // The results of the wait are the buffers that the gather fills, so
        // their places are known before the wait is reached.
        SmallVector<Value> destinations;
        auto wait = cast<fsdp::AllGatherWaitOp>(*start.getToken().user_begin());
        for (Value gathered : wait.getResults())
          destinations.push_back(pointers.get(here, gathered));
        gather(start, destinations);
        tokenEvents[start.getToken()] = events;
        record(rt::Stream::gather, events++);
        return success();
      })
      .Case([&](fsdp::AllGatherWaitOp op) {
        wait(rt::Stream::compute, tokenEvents.lookup(op.getToken()));
        return success();
      })
      .Case([&](fsdp::ReduceScatterStartOp start) {
        order(rt::Stream::compute, rt::Stream::reduce);
        rt::ReduceScatterOp::create(rtBuilder, here, start.getLayoutsAttr(),
                                    pointersOf(start.getGradients()));
        tokenEvents[start.getToken()] = events;
        record(rt::Stream::reduce, events++);
        return success();
      })
      .Case([&](fsdp::ReduceScatterWaitOp op) {
        wait(rt::Stream::compute, tokenEvents.lookup(op.getToken()));
        return success();
      })
      .Case([&](fsdp::AccumulateOp op) {
        rt::AccumulateOp::create(rtBuilder, here, op.getLayoutAttr(),
                                 pointers.get(here, op.getGradient()));
        return success();
      })
      // Compute waits until the statistics of all ranks have arrived, as the
      // cost model assumes (durationOf in ScheduleIR.cpp).
      .Case([&](fsdp::UpdateStatisticsOp op) {
        order(rt::Stream::compute, rt::Stream::reduce);
        rt::UpdateStatisticsOp::create(
            rtBuilder, here, op.getBufferAttr(),
            pointers.get(here, op.getStatistic()), op.getMomentumAttr(),
            rtBuilder.getI32IntegerAttr(static_cast<int>(fsdp::modeOf(op))));
        order(rt::Stream::reduce, rt::Stream::compute);
        return success();
      })
      .Default([&](Operation *op) { return convertUpdate(op); });
}

// Converts the collectives that occur in @update only.
LogicalResult FunctionConverter::convertUpdate(Operation *op) {
  // In @update each collective runs on its own: there is nothing to overlap
  // with.
  auto onLayouts = [&](auto op, auto create, rt::Stream stream) {
    order(rt::Stream::compute, stream);
    create(op.getLayoutsAttr());
    order(stream, rt::Stream::compute);
    return success();
  };
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](fsdp::ReduceGradientsOp op) {
        return onLayouts(
            op,
            [&](ArrayAttr layouts) {
              rt::ReduceGradientsOp::create(rtBuilder, here, layouts);
            },
            rt::Stream::reduce);
      })
      .Case([&](fsdp::GatherGradientsOp op) {
        return onLayouts(
            op,
            [&](ArrayAttr layouts) {
              rt::GatherGradientsOp::create(rtBuilder, here, layouts);
            },
            rt::Stream::gather);
      })
      .Case([&](fsdp::WholeGradientOp op) {
        order(rt::Stream::compute, rt::Stream::gather);
        rt::WholeGradientOp::create(rtBuilder, here, op.getLayoutAttr(),
                                    pointers.get(here, op.getResult()));
        order(rt::Stream::gather, rt::Stream::compute);
        return success();
      })
      .Case([&](fsdp::GatherParametersOp op) {
        return onLayouts(
            op,
            [&](ArrayAttr layouts) {
              SmallVector<Value> wholes;
              for (auto layout : layouts.getAsRange<FlatSymbolRefAttr>())
                wholes.push_back(pointers.whole(here, layout));
              rt::AllGatherOp::create(rtBuilder, here, layouts, wholes);
            },
            rt::Stream::gather);
      })
      .Case([&](fsdp::AllReduceOp op) {
        order(rt::Stream::compute, rt::Stream::reduce);
        rt::AllReduceOp::create(rtBuilder, here,
                                op.getInput().getType().getNumElements(),
                                pointers.get(here, op.getInput()));
        order(rt::Stream::reduce, rt::Stream::compute);
        return success();
      })
      .Case<fsdp::CollectMatricesOp, fsdp::SpreadMatricesOp>([&](auto op) {
        bool toOwners = isa<fsdp::CollectMatricesOp>(*op);
        order(rt::Stream::compute, rt::Stream::reduce);
        rt::MoveMatricesOp::create(rtBuilder, here, op.getLayoutAttr(),
                                   pointers.get(here, op.getInput()),
                                   rtBuilder.getI32IntegerAttr(toOwners));
        order(rt::Stream::reduce, rt::Stream::compute);
        return success();
      })
      .Default([&](Operation *op) { return convertOptimizer(op); });
}

// Converts the arithmetic of @update. An op that no case knows has been left
// over by an earlier phase.
LogicalResult FunctionConverter::convertOptimizer(Operation *op) {
  auto sumsPerMember = [&](auto op) {
    return rtBuilder.getI32IntegerAttr(
        static_cast<int32_t>(op.getSumsPerMember()));
  };
  auto flag = [&](bool set) { return rtBuilder.getI32IntegerAttr(set); };
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](fsdp::SumSquaresOp op) {
        rt::SumSquaresOp::create(rtBuilder, here, op.getLayoutsAttr(),
                                 pointers.get(here, op.getResult()));
        return success();
      })
      .Case([&](fsdp::ClipScaleOp op) {
        Value sums = pointers.get(here, op.getSums());
        rt::ClipOp::create(rtBuilder, here, op.getLayoutsAttr(), sums,
                           op.getMaxNormAttr(),
                           pointers.get(here, op.getScale()));
        return success();
      })
      .Case([&](fsdp::MemberSumsOp op) {
        FlatSymbolRefAttr kernel = pointers.outlineSums(op);
        Value scale = pointers.get(here, op.getScale());
        rt::MemberSumsOp::create(
            rtBuilder, here, kernel, op.getLayoutsAttr(), scale,
            sumsPerMember(op), pointers.get(here, op.getResult()),
            op.getFactors() ? pointers.get(here, op.getFactors()) : Value());
        return success();
      })
      .Case([&](fsdp::FactorSumsOp op) {
        Value scale = pointers.get(here, op.getScale());
        rt::FactorSumsOp::create(rtBuilder, here, op.getLayoutsAttr(), scale,
                                 op.getClipValueAttr(),
                                 pointers.get(here, op.getResult()));
        return success();
      })
      .Case([&](fsdp::UpdateFactorsOp op) {
        rt::UpdateFactorsOp::create(rtBuilder, here, op.getLayoutsAttr(),
                                    pointers.get(here, op.getSums()),
                                    op.getEpsAttr(), op.getPowerAttr(),
                                    pointers.get(here, op.getResult()));
        return success();
      })
      .Case([&](fsdp::OptimizerOp op) {
        FlatSymbolRefAttr kernel = pointers.outlineOptimizer(op);
        Value scale = pointers.get(here, op.getScale());
        rt::OptimizerOp::create(
            rtBuilder, here, kernel, op.getLayoutAttr(), scale,
            sumsPerMember(op), pointers.sumsOf(op), pointers.factorsOf(op),
            op.getUpdates() ? pointers.get(here, op.getUpdates()) : Value(),
            op.getGradient() ? pointers.get(here, op.getGradient()) : Value());
        return success();
      })
      .Case([&](fsdp::MomentumUpdatesOp op) {
        rt::MomentumUpdatesOp::create(
            rtBuilder, here, op.getLayoutAttr(),
            pointers.get(here, op.getScale()), op.getMomentumAttr(),
            op.getClipValueAttr(), flag(op.getNesterov()),
            flag(op.getMaximize()), pointers.get(here, op.getResult()));
        return success();
      })
      .Case([&](fsdp::OrthogonalizeOp op) {
        Value updates = pointers.get(here, op.getUpdates());
        rt::OrthogonalizeOp::create(
            rtBuilder, here, op.getLayoutAttr(), updates, op.getAAttr(),
            op.getBAttr(), op.getCAttr(), op.getEpsAttr(), op.getStepsAttr(),
            flag(op.getBf16()), flag(op.getAdjust() == "match_rms_adamw"),
            pointers.get(here, op.getResult()));
        return success();
      })
      .Default([](Operation *op) {
        return op->emitOpError(
            "has no counterpart in the runtime; run the earlier phases first");
      });
}

// Ops that only name memory (views, packs, constants) have no call: the
// pointers of their users contain them.
LogicalResult FunctionConverter::convert(Operation *op) {
  if (auto call = dyn_cast<rt::RuntimeCallOpInterface>(op)) {
    call.createCall(*this);
    return success();
  }
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case<nn::ReshapeOp, nn::TransposeOp, nn::SliceOp, nn::ConcatOp,
            nn::ConstantOp, fsdp::ViewOp, fsdp::PackOp, fsdp::ReplicatedOp,
            fsdp::RandomOp, fsdp::LossScaleOp, fsdp::MicrobatchWeightOp,
            fsdp::LoadOp, fsdp::FreeOp, fsdp::EnterOp, fsdp::ExitOp,
            func::ReturnOp>(
          [](Operation *) { return success(); }) // addresses, or nothing at all
      .Case([&](nn::LaunchOp op) {
        SmallVector<Value> buffers = pointersOf(op->getOperands());
        llvm::append_range(buffers, pointersOf(op->getResults()));
        rt::LaunchOp::create(rtBuilder, here, op.getKernelAttr(), buffers);
        return success();
      })
      .Case([&](fsdp::ReportLossOp op) {
        Value loss = pointers.get(here, op.getLoss());
        Value valid =
            op.getValid() ? pointers.get(here, op.getValid()) : Value();
        rt::ReportLossOp::create(rtBuilder, here, loss, valid);
        return success();
      })
      .Case([&](fsdp::ReportZeroedOp op) {
        rt::ReportZeroedOp::create(rtBuilder, here,
                                   pointers.get(here, op.getZeroed()));
        return success();
      })
      .Default([&](Operation *op) { return convertCollective(op); });
}

LogicalResult FunctionConverter::run(const DeadMemory &deadMemory) {
  pointers.declareInputs(function);
  // The ops are collected first: conversion inserts calls in front of them,
  // which must not be converted again.
  SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front())
    ops.push_back(&op);
  for (Operation *op : ops) {
    rtBuilder.setInsertionPoint(op);
    here = op->getLoc();
    // The listener copies attributes of the op that is being converted. A
    // poison is not part of it and gets none.
    annotator.source = op;
    if (failed(convert(op)))
      return failure();
    annotator.source = nullptr;
    // Behind the op, which reads the memory last.
    for (auto [offset, bytes] : deadMemory.lookup(op))
      rt::PoisonOp::create(rtBuilder, here, pointers.arena(here, offset, bytes),
                           bytes);
  }
  // Erased in reverse, so that users go before what they use.
  for (Operation *op : llvm::reverse(ops))
    if (!isa<func::ReturnOp>(op))
      op->erase();
  // Inputs are symbols from here on, and the entry functions of the program
  // take no arguments.
  function.getBody().front().eraseArguments([](BlockArgument) { return true; });
  function.setType(FunctionType::get(function.getContext(), {}, {}));
  function.removeArgAttrsAttr();
  return success();
}

// Returns where the slots of a planned function end, for --poison.
FailureOr<FunctionConverter::DeadMemory> findDeadMemory(func::FuncOp function,
                                                        int64_t gatherPadding) {
  SlotOptions options;
  options.gatherPadding = gatherPadding;
  options.useTie = isPlannedTie;
  FailureOr<SmallVector<Slot>> slots = findSlots(function, 0, options);
  if (failed(slots))
    return failure();
  // Positions of slots count the ops of the block from 0.
  SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front())
    ops.push_back(&op);
  // Only the bytes of values are poisoned, not the room behind a gather for its
  // padding.
  FunctionConverter::DeadMemory result;
  for (const Slot &slot : *slots) {
    const SlotValue &first = slot.values.front();
    int64_t offset = *plannedOffset(first.op, first.result) - first.offset;
    result[ops[slot.end]].emplace_back(offset, slot.bytes - slot.slack);
  }
  return result;
}

struct ConvertToRT : fsdpc::passes::impl::ConvertToRTBase<ConvertToRT> {
  void runOnOperation() override {
    SymbolTable symbols(getOperation());
    fsdp::CompileOptions options = fsdp::CompileOptions::of(getOperation());
    for (StringRef name :
         {fsdp::FSDPDialect::kMicrobatch, fsdp::FSDPDialect::kUpdate})
      if (!symbols.lookup<func::FuncOp>(name)) {
        getOperation().emitError("function '@")
            << name << "' is missing; run the earlier phases first";
        return signalPassFailure();
      }
    // Each function numbers its events from 0.
    for (func::FuncOp function : fsdp::entriesOf(getOperation())) {
      FailureOr<FunctionConverter::DeadMemory> dead =
          FunctionConverter::DeadMemory();
      if (options.poison)
        dead = findDeadMemory(function, options.gatherPadding());
      if (failed(dead) ||
          failed(FunctionConverter(function, symbols).run(*dead)))
        return signalPassFailure();
    }
  }
};

} // namespace
