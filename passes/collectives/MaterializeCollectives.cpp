// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// materialize-collectives: writes into the program where ZeRO (Rajbhandari et
// al., 2020) and PyTorch FSDP gather, free and reduce. Everything is
// synchronous here: a program of this phase is correct in program order, and
// scheduling only moves starts and waits apart. The gathers are inserted by
// Gathers.cpp.
#include "passes/collectives/Gathers.h"
#include "passes/collectives/Passes.h"
#include "passes/collectives/Segments.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/options/Options.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_MATERIALIZECOLLECTIVES
#include "passes/collectives/Passes.h.inc"

using namespace mlir;
using fsdp::FSDPDialect;

namespace {

// ---- reductions ----

// reduce = step: gradients are only added up locally; @update reduces them.
void accumulateLocally(Block &body) {
  for (auto reduce :
       llvm::make_early_inc_range(body.getOps<fsdp::ReduceOp>())) {
    OpBuilder builder(reduce);
    auto op = fsdp::AccumulateOp::create(
        builder, reduce.getLoc(), reduce.getLayoutAttr(), reduce.getGradient());
    copyPlace(reduce, op);
    reduce.erase();
  }
}

// The layouts of one reduction, with their gradients.
struct Reduction {
  SmallVector<Attribute> layouts;
  SmallVector<Value> gradients;

  void add(fsdp::ReduceOp reduce) {
    layouts.push_back(reduce.getLayoutAttr());
    gradients.push_back(reduce.getGradient());
  }
  fsdp::ReduceScatterOp create(OpBuilder &builder, Location loc) const {
    return fsdp::ReduceScatterOp::create(
        builder, loc, builder.getArrayAttr(layouts), gradients);
  }
};

// Collects the gradients that are reduced to the owners of their parameters
// until a bucket is full, as FairScale's ShardedDataParallel. The reduction
// stands where the last of them is packed. A gradient larger than a bucket is
// reduced alone.
class Bucket {
public:
  explicit Bucket(int64_t size) : size(size) {}

  void add(fsdp::ReduceOp reduce) {
    int64_t more =
        cast<ShapedType>(reduce.getGradient().getType()).getNumElements();
    if (elements + more > size)
      close();
    if (last)
      last->erase();
    open.add(reduce);
    elements += more;
    last = reduce;
  }
  // Writes the reduction.
  void close() {
    if (!last)
      return;
    OpBuilder builder(last);
    copyPlace(last, open.create(builder, last->getLoc()));
    last->erase();
    last = nullptr;
    elements = 0;
    open = {};
  }

private:
  int64_t size, elements = 0;
  Reduction open;
  Operation *last = nullptr; // stays until the bucket is closed
};

// A unit's gradients are reduced as soon as they are packed, those of owners in
// buckets. Strategies that reduce at the end of the microbatch share one
// reduction of all their layouts.
void reduceOverRanks(ModuleOp module, const fsdp::CompileOptions &options,
                     Block &body) {
  SymbolTable symbols(module);
  Reduction atEnd;
  Bucket bucket(options.bucketSize);
  SmallVector<fsdp::ReduceOp> reduces(body.getOps<fsdp::ReduceOp>());
  for (fsdp::ReduceOp reduce : reduces) {
    auto layout = symbols.lookup<fsdp::LayoutOp>(reduce.getLayout());
    if (fsdp::hasOwner(layout, options)) {
      bucket.add(reduce);
      continue;
    }
    if (fsdp::strategyOf(layout, options)->reducesAtEnd) {
      atEnd.add(reduce);
    } else {
      OpBuilder builder(reduce);
      Reduction alone;
      alone.add(reduce);
      copyPlace(reduce, alone.create(builder, reduce.getLoc()));
    }
    reduce.erase();
  }
  bucket.close();
  if (atEnd.layouts.empty())
    return;
  // It stands before the terminator and has no unit, since it reduces the
  // layouts of many.
  OpBuilder builder(body.getTerminator());
  atEnd.create(builder, body.getParentOp()->getLoc());
}

// ---- marks ----

// Surrounds each segment with fsdp.enter and fsdp.exit. Marks are placed before
// gathers are inserted, at the ops that do the work. Gathers then come before
// their first reader and so between the marks.
void markSegments(ArrayRef<Segment> segments) {
  for (const Segment &segment : segments) {
    OpBuilder builder(segment.first);
    UnitAttr backward = segment.backward ? builder.getUnitAttr() : UnitAttr();
    fsdp::EnterOp::create(builder, segment.first->getLoc(), segment.unit,
                          backward);
    builder.setInsertionPointAfter(segment.last);
    fsdp::ExitOp::create(builder, segment.last->getLoc(), segment.unit,
                         backward);
  }
}

// ---- @update ----

// Gathers gradients one layout at a time, each directly before the optimizer
// that reads it, so that the arena holds one of them.
void borrowGradients(ModuleOp module, const fsdp::CompileOptions &options,
                     Block &body) {
  SymbolTable symbols(module);
  for (auto optimizer : body.getOps<fsdp::OptimizerOp>()) {
    auto layout = symbols.lookup<fsdp::LayoutOp>(optimizer.getLayout());
    if (!fsdp::borrowsGradients(layout))
      continue;
    OpBuilder builder(optimizer);
    auto type = RankedTensorType::get(
        {fsdp::wholeGradientElementsOf(layout, options)}, builder.getF32Type());
    auto whole = fsdp::WholeGradientOp::create(builder, optimizer.getLoc(),
                                               type, optimizer.getLayoutAttr());
    optimizer.getGradientMutable().assign(whole.getResult());
  }
}

// Adds the collectives of @update that the strategy needs around the optimizer.
void completeUpdate(ModuleOp module, const fsdp::CompileOptions &options,
                    Block &body) {
  // Frozen layouts have no gradients and never change, so @update does not
  // touch them.
  SmallVector<Attribute> all, byGradients, byParameters;
  for (auto layout : module.getOps<fsdp::LayoutOp>()) {
    if (!layout.getTrainable())
      continue;
    auto name = FlatSymbolRefAttr::get(layout);
    all.push_back(name);
    if (gathersGradients(layout))
      byGradients.push_back(name);
    if (gathersParameters(layout))
      byParameters.push_back(name);
  }
  OpBuilder builder = OpBuilder::atBlockBegin(&body);
  Location loc = body.getParentOp()->getLoc();
  // First of all: the norm reads the reduced gradients.
  if (options.reduce == fsdp::ReductionTime::Step)
    fsdp::ReduceGradientsOp::create(builder, loc, builder.getArrayAttr(all));
  auto optimizers = body.getOps<fsdp::OptimizerOp>();
  // With replicated optimizer states each rank needs the whole reduced gradient
  // before it updates.
  if (!byGradients.empty() && !optimizers.empty()) {
    builder.setInsertionPoint(*optimizers.begin());
    fsdp::GatherGradientsOp::create(builder, loc,
                                    builder.getArrayAttr(byGradients));
  }
  borrowGradients(module, options, body);
  // Each rank has updated its shard of the parameters, and the next microbatch
  // reads the whole.
  if (!byParameters.empty()) {
    builder.setInsertionPoint(body.getTerminator());
    fsdp::GatherParametersOp::create(builder, loc,
                                     builder.getArrayAttr(byParameters));
  }
}

struct MaterializeCollectives
    : impl::MaterializeCollectivesBase<MaterializeCollectives> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto forwards = fsdp::getForwards(module);
    auto update = fsdp::getEntry(module, FSDPDialect::kUpdate);
    if (failed(forwards) || failed(update))
      return signalPassFailure();
    fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
    // @evaluate hands over no gradients, so nothing is reduced there.
    for (func::FuncOp function : *forwards)
      materialize(module, options, function);
    completeUpdate(module, options, update->front());
    // Quietly ignored, the option would leave gathers between nodes that its
    // user means to be rid of.
    if (options.reshardTo > 0 && llvm::none_of(module.getOps<fsdp::LayoutOp>(),
                                               [](fsdp::LayoutOp layout) {
                                                 return layout.getSecondary();
                                               })) {
      module.emitError("'--reshard-to=")
          << options.reshardTo
          << "' has no effect: no unit of zero3 is gathered twice in a "
             "microbatch; use smaller units, or omit it";
      signalPassFailure();
    }
  }

  void materialize(ModuleOp module, const fsdp::CompileOptions &options,
                   func::FuncOp function) {
    Block &body = function.front();
    if (options.reduce == fsdp::ReductionTime::Step)
      accumulateLocally(body);
    else
      reduceOverRanks(module, options, body);

    // Segments are found while layouts still are fsdp.flat, before gathers and
    // views of them exist in several copies.
    SmallVector<Segment> found = findSegments(body);
    segments += found.size();
    markSegments(found);

    // An evaluation has no backward that would read secondary shards.
    bool reshard = options.reshardTo > 0 &&
                   function.getSymName() == FSDPDialect::kMicrobatch;
    gathers += gatherParameters(module, options, body, reshard);
  }
};

} // namespace
} // namespace fsdpc::passes
