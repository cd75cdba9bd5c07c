// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gathers of updated parameters, moved out of @update. Nothing reads the
// parameters between an update and the next forward, so the gathers may take
// until the forward reaches their unit.
#include "passes/runtime/UpdatedParameters.h"

#include "compiler/dialects/fsdp/SymbolEffects.h"
#include "compiler/dialects/rt/Streams.h"
#include "passes/runtime/MemoryAccesses.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// A unit's layouts, and the first op on the compute stream that reads one of
// them; null if none does.
struct Gather {
  SmallVector<FlatSymbolRefAttr> layouts;
  Operation *reader = nullptr;
};
using Gathers = llvm::MapVector<Attribute, Gather>; // by unit

Gathers byUnit(ArrayRef<FlatSymbolRefAttr> layouts, SymbolTable &symbols) {
  Gathers gathers;
  for (FlatSymbolRefAttr name : layouts) {
    auto layout = symbols.lookup<fsdp::LayoutOp>(name.getAttr());
    gathers[layout.getUnitAttr()].layouts.push_back(name);
  }
  return gathers;
}

// Sets the readers, and returns the gathers in their order. Units that compute
// never reads come last.
FailureOr<SmallVector<Gather>> inOrderOfReaders(func::FuncOp forward,
                                                Gathers gathers,
                                                const SymbolTable &symbols,
                                                int64_t gatherPadding) {
  DenseMap<Attribute, Gather *> ofLayout;
  for (auto &[unit, gather] : gathers)
    for (FlatSymbolRefAttr layout : gather.layouts)
      ofLayout[layout] = &gather;
  SmallVector<Gather *> order;
  for (Operation &op : forward.front()) {
    if (rt::streamOf(&op) != rt::Stream::compute)
      continue;
    FailureOr<SmallVector<MemoryAccess>> accesses =
        accessesOf(&op, symbols, gatherPadding);
    if (failed(accesses))
      return failure();
    for (const MemoryAccess &access : *accesses) {
      Gather *gather = fsdp::isSame(access.memory, fsdp::ParameterMemory::get())
                           ? ofLayout.lookup(access.symbol)
                           : nullptr;
      if (!gather || gather->reader)
        continue;
      gather->reader = &op;
      order.push_back(gather);
    }
  }
  SmallVector<Gather> result;
  for (Gather *gather : order)
    result.push_back(*gather);
  for (auto &[unit, gather] : gathers)
    if (!gather.reader)
      result.push_back(gather);
  return result;
}

int eventsOf(func::FuncOp function) {
  int events = 0;
  function.walk([&](rt::EventRecordOp record) {
    events = std::max(events, int(record.getEvent()) + 1);
  });
  return events;
}

} // namespace

SmallVector<FlatSymbolRefAttr>
fsdpc::passes::layoutsGatheredByUpdate(ModuleOp module) {
  SmallVector<FlatSymbolRefAttr> layouts;
  if (auto update =
          module.lookupSymbol<func::FuncOp>(fsdp::FSDPDialect::kUpdate))
    update.walk([&](fsdp::GatherParametersOp gather) {
      llvm::append_range(layouts,
                         gather.getLayouts().getAsRange<FlatSymbolRefAttr>());
    });
  return layouts;
}

LogicalResult fsdpc::passes::gatherUpdated(func::FuncOp forward,
                                           ArrayRef<FlatSymbolRefAttr> layouts,
                                           SymbolTable &symbols,
                                           int64_t gatherPadding) {
  FailureOr<SmallVector<Gather>> gathers = inOrderOfReaders(
      forward, byUnit(layouts, symbols), symbols, gatherPadding);
  if (failed(gathers))
    return failure();
  int event = eventsOf(forward);
  OpBuilder builder = OpBuilder::atBlockBegin(&forward.front());
  OwnersOfMemory owners; // of values, and none is pointed at here
  PointerBuilder pointers(symbols, owners, builder);
  Location loc = forward.getLoc();
  for (const Gather &gather : *gathers) {
    SmallVector<Value> wholes;
    SmallVector<Attribute> names(gather.layouts.begin(), gather.layouts.end());
    for (FlatSymbolRefAttr layout : gather.layouts)
      wholes.push_back(pointers.whole(loc, layout));
    auto call = rt::AllGatherOp::create(builder, loc,
                                        builder.getArrayAttr(names), wholes);
    auto first = symbols.lookup<fsdp::LayoutOp>(gather.layouts[0].getAttr());
    call->setAttr(fsdp::FSDPDialect::kUnitAttr, first.getUnitAttr());
    if (!gather.reader)
      continue;
    rt::EventRecordOp::create(builder, loc, rt::Stream::gather, event);
    OpBuilder before(gather.reader);
    rt::EventWaitOp::create(before, gather.reader->getLoc(),
                            rt::Stream::compute, event++);
  }
  return success();
}
