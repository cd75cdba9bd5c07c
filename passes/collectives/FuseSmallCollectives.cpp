// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fuse-small-collectives: makes fewer, larger collectives, since small ones are
// bound by latency. Compute is not reordered: only neighbours fuse, with
// nothing between them but views and marks. Collectives of one unit fuse
// whatever their size, since its layouts are gathered and reduced together
// anyway.
#include "compiler/dialects/nn/ElementBytes.h"
#include "passes/collectives/Passes.h"
#include "passes/collectives/Segments.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/options/Options.h"

#include <utility>

namespace fsdpc::passes {
#define GEN_PASS_DEF_FUSESMALLCOLLECTIVES
#include "passes/collectives/Passes.h.inc"

using namespace mlir;

namespace {

// Below this size the latency of a collective outweighs its transfer, and one
// collective of two layouts costs less than two. Bytes of whole buffers, over
// all ranks.
constexpr int64_t kSmallBytes = 1 << 20;

int64_t bytesOf(TypeRange types) {
  int64_t bytes = 0;
  for (Type type : types)
    bytes += nn::tensorBytes(type);
  return bytes;
}

// Returns true if a collective of both is small, or if both are of one unit.
bool mayFuse(Operation *a, Operation *b, int64_t bytes) {
  return bytes <= kSmallBytes || (getUnit(a) && getUnit(a) == getUnit(b));
}

// Neighbours that become one collective, and the bytes of their buffers.
template <typename Collective> struct Run {
  SmallVector<Collective> ops;
  int64_t bytes = 0;

  void add(Collective op, int64_t more) {
    ops.push_back(op);
    bytes += more;
  }
  ArrayAttr layouts() {
    SmallVector<Attribute> all;
    for (Collective op : ops)
      llvm::append_range(all, op.getLayouts());
    return ArrayAttr::get(ops.front().getContext(), all);
  }
};

// A gather keeps secondary shards, reads them or does neither, for all of its
// layouts.
bool haveSameMarks(fsdp::AllGatherOp a, fsdp::AllGatherOp b) {
  return a.getKeepSecondary() == b.getKeepSecondary() &&
         a.getFromSecondary() == b.getFromSecondary();
}

// Makes one gather at the place of the first, which the users of all come
// after. Returns how many gathers were saved.
int64_t join(Run<fsdp::AllGatherOp> run) {
  if (run.ops.size() < 2)
    return 0;
  fsdp::AllGatherOp first = run.ops.front();
  OpBuilder builder(first);
  SmallVector<Type> types;
  for (fsdp::AllGatherOp gather : run.ops)
    llvm::append_range(types, gather.getResultTypes());
  auto all = fsdp::AllGatherOp::create(
      builder, first.getLoc(), types, run.layouts(),
      first.getKeepSecondaryAttr(), first.getFromSecondaryAttr());
  // Unit and direction are those of the first one.
  all->setDiscardableAttrs(first->getDiscardableAttrDictionary());
  ResultRange results = all.getResults();
  for (fsdp::AllGatherOp gather : run.ops) {
    unsigned count = gather->getNumResults();
    gather->replaceAllUsesWith(results.take_front(count));
    results = results.drop_front(count);
    gather.erase();
  }
  return run.ops.size() - 1;
}

int64_t fuseGathers(Block &body) {
  int64_t fused = 0;
  // The gathers that a later one may join. It ends at anything but views and
  // marks.
  Run<fsdp::AllGatherOp> open;
  for (Operation &op : llvm::make_early_inc_range(body)) {
    auto gather = dyn_cast<fsdp::AllGatherOp>(op);
    if (!gather && (isWeightAlias(&op) || isa<fsdp::EnterOp>(op)))
      continue;
    int64_t bytes = gather ? bytesOf(gather.getResultTypes()) : 0;
    if (!open.ops.empty() &&
        (!gather || !haveSameMarks(open.ops.front(), gather) ||
         !mayFuse(open.ops.front(), gather, open.bytes + bytes)))
      fused += join(std::exchange(open, {}));
    if (gather)
      open.add(gather, bytes);
  }
  return fused + join(open);
}

// The last reduction takes the gradients of all, since all sources must be
// complete. Returns how many reductions were saved.
int64_t join(Run<fsdp::ReduceScatterOp> run) {
  if (run.ops.size() < 2)
    return 0;
  SmallVector<Value> gradients;
  for (fsdp::ReduceScatterOp reduce : run.ops)
    llvm::append_range(gradients, reduce.getGradients());
  fsdp::ReduceScatterOp last = run.ops.back();
  last.setLayoutsAttr(run.layouts());
  last.getGradientsMutable().assign(gradients);
  for (fsdp::ReduceScatterOp reduce : ArrayRef(run.ops).drop_back())
    reduce.erase();
  return run.ops.size() - 1;
}

// Buckets of owners are as large as they are meant to be.
int64_t fuseReductions(Block &body, const SymbolTable &symbols,
                       const fsdp::CompileOptions &options) {
  auto isBucket = [&](fsdp::ReduceScatterOp reduce) {
    auto layout = symbols.lookup<fsdp::LayoutOp>(
        reduce.getLayoutRefs().front().getAttr());
    return fsdp::hasOwner(layout, options);
  };
  int64_t fused = 0;
  Run<fsdp::ReduceScatterOp> open;
  for (Operation &op : llvm::make_early_inc_range(body)) {
    auto reduce = dyn_cast<fsdp::ReduceScatterOp>(op);
    // A pack writes nowhere else than into its own buffer, so the reduction of
    // an earlier pack may wait for it.
    if (isa<fsdp::PackOp, fsdp::EnterOp, fsdp::ExitOp, fsdp::FreeOp>(op))
      continue;
    bool joins = reduce && !isBucket(reduce);
    int64_t bytes = joins ? bytesOf(reduce.getGradients().getTypes()) : 0;
    if (!open.ops.empty() &&
        (!joins || !mayFuse(open.ops.back(), reduce, open.bytes + bytes)))
      fused += join(std::exchange(open, {}));
    if (joins)
      open.add(reduce, bytes);
  }
  return fused + join(open);
}

struct FuseSmallCollectives
    : impl::FuseSmallCollectivesBase<FuseSmallCollectives> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    SymbolTable symbols(module);
    fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
    auto functions = fsdp::getForwards(module);
    if (failed(functions))
      return signalPassFailure();
    int64_t count = 0;
    for (func::FuncOp function : *functions)
      count += fuseGathers(function.front()) +
               fuseReductions(function.front(), symbols, options);
    if (count == 0)
      markAllAnalysesPreserved();
    fused += count;
  }
};

} // namespace
} // namespace fsdpc::passes
