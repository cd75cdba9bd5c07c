// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Converts planned ops into calls of the runtime, one after the other. Tensors
// become pointers by their planned offsets, and every transition between
// streams gets an event.
#include "passes/runtime/FunctionConverter.h"

#include "compiler/dialects/fsdp/Offloads.h"
#include "compiler/dialects/fsdp/RunningStatistics.h"
#include "compiler/dialects/fsdp/Tokens.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/LibraryOps.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

// The gather fills the results of the wait. A secondary shard is kept before
// the gather's event is recorded: until then nothing overwrites the results.
void FunctionConverter::gather(fsdp::AllGatherStartOp start) {
  Operation *wait = *start.getToken().user_begin();
  SmallVector<Value> destinations = pointersOf(wait->getResults());
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

// One call per value. The bytes of the start are those of all of them.
void FunctionConverter::offload(fsdp::OffloadStartOp start) {
  for (auto [value, place] :
       llvm::zip_equal(start.getValues(), *start.getPlaces())) {
    int64_t bytes = nn::tensorBytes(value.getType());
    auto call = rt::OffloadOp::create(rtBuilder, here,
                                      pointers.get(here, value), bytes, place);
    call->setAttr(fsdp::FSDPDialect::kBytesAttr,
                  rtBuilder.getI64IntegerAttr(bytes));
  }
}

void FunctionConverter::fetch(fsdp::FetchStartOp start) {
  auto from = start.getHeld()
                  .getDefiningOp<fsdp::OffloadWaitOp>()
                  .getToken()
                  .getDefiningOp<fsdp::OffloadStartOp>();
  Operation *wait = *start.getToken().user_begin();
  for (auto [value, place] :
       llvm::zip_equal(wait->getResults(), *from.getPlaces())) {
    int64_t bytes = nn::tensorBytes(value.getType());
    auto call = rt::FetchOp::create(rtBuilder, here, pointers.get(here, value),
                                    bytes, place);
    call->setAttr(fsdp::FSDPDialect::kBytesAttr,
                  rtBuilder.getI64IntegerAttr(bytes));
  }
}

// Starts wait until compute reaches them, run on a stream of their own, and
// record an event there. A wait makes compute wait for that event.
LogicalResult FunctionConverter::convertCollective(Operation *op) {
  auto begin = [&](Value token, rt::Stream stream,
                   llvm::function_ref<void()> createCalls) {
    order(rt::Stream::compute, stream);
    createCalls();
    tokenEvents[token] = events;
    record(stream, events++);
    return success();
  };
  if (Value token = fsdp::awaitedToken(op)) {
    wait(rt::Stream::compute, tokenEvents.lookup(token));
    return success();
  }
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](fsdp::AllGatherStartOp start) {
        return begin(start.getToken(), rt::Stream::gather,
                     [&] { gather(start); });
      })
      .Case([&](fsdp::ReduceScatterStartOp start) {
        return begin(start.getToken(), rt::Stream::reduce, [&] {
          rt::ReduceScatterOp::create(rtBuilder, here, start.getLayoutsAttr(),
                                      pointersOf(start.getGradients()));
        });
      })
      .Case([&](fsdp::OffloadStartOp start) {
        return begin(start.getToken(), rt::Stream::reduce,
                     [&] { offload(start); });
      })
      .Case([&](fsdp::FetchStartOp start) {
        return begin(start.getToken(), rt::Stream::gather,
                     [&] { fetch(start); });
      })
      .Case([&](fsdp::AccumulateOp op) {
        rt::AccumulateOp::create(rtBuilder, here, op.getLayoutAttr(),
                                 pointers.get(here, op.getGradient()));
        return success();
      })
      // Compute waits until the statistics of all ranks have arrived, as the
      // cost model assumes (durationOf in passes/schedule/Durations.cpp).
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
        if (gathersLater)
          return success();
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
      .Default([&](Operation *op) { return convertOptimizer(op); });
}

// Converts the arithmetic of @update.
LogicalResult FunctionConverter::convertOptimizer(Operation *op) {
  auto sumsPerMember = [&](auto op) {
    return rtBuilder.getI32IntegerAttr(
        static_cast<int32_t>(op.getSumsPerMember()));
  };
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
      .Default([&](Operation *op) { return convertMatrices(op); });
}

// Converts what orthogonalises matrices. An op that no case knows has been left
// over by an earlier phase.
LogicalResult FunctionConverter::convertMatrices(Operation *op) {
  auto flag = [&](bool set) { return rtBuilder.getI32IntegerAttr(set); };
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](fsdp::MomentumUpdatesOp op) {
        rt::MomentumUpdatesOp::create(
            rtBuilder, here, op.getLayoutAttr(),
            pointers.get(here, op.getScale()), op.getMomentumAttr(),
            op.getClipValueAttr(), flag(op.getNesterov()),
            flag(op.getMaximize()), pointers.get(here, op.getResult()));
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

LogicalResult FunctionConverter::convert(Operation *op) {
  if (op->hasTrait<nn::NoCall>() || isa<func::ReturnOp>(op))
    return success();
  if (auto call = dyn_cast<rt::RuntimeCallOpInterface>(op)) {
    // An edited dump may ask for what no library computes.
    if (!call.getPlan())
      return failure();
    call.createCall(*this);
    return success();
  }
  return TypeSwitch<Operation *, LogicalResult>(op)
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
