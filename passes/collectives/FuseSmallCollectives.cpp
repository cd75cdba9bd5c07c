// fuse-small-collectives: makes fewer, larger collectives, since small ones are
// bound by latency. Compute is not reordered: only neighbours fuse, with
// nothing between them but views and marks. Collectives of one unit fuse
// whatever their size, since its layouts are gathered and reduced together
// anyway.
#include "passes/collectives/Passes.h"
#include "passes/collectives/Segments.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Options.h"
#include "compiler/dialects/fsdp/Strategies.h"

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
  for (Type type : types) {
    auto tensor = cast<ShapedType>(type);
    bytes += tensor.getNumElements() * tensor.getElementTypeBitWidth() / 8;
  }
  return bytes;
}

// Returns true if a collective of both is small, or if both are of one unit.
bool mayFuse(Operation *a, Operation *b, int64_t bytes) {
  return bytes <= kSmallBytes || (getUnit(a) && getUnit(a) == getUnit(b));
}

ArrayAttr concat(ArrayAttr a, ArrayAttr b) {
  SmallVector<Attribute> all(a.begin(), a.end());
  all.append(b.begin(), b.end());
  return ArrayAttr::get(a.getContext(), all);
}

// A gather keeps secondary shards, reads them or does neither, for all of its
// layouts.
bool haveSameMarks(fsdp::AllGatherOp a, fsdp::AllGatherOp b) {
  return a.getKeepSecondary() == b.getKeepSecondary() &&
         a.getFromSecondary() == b.getFromSecondary();
}

// The later gather joins the earlier one, which its users come after. Returns
// how many gathers were saved.
int64_t fuseGathers(Block &body) {
  int64_t fused = 0;
  // The gather that a later one may join, or null if anything but views and
  // marks has come since.
  fsdp::AllGatherOp open;
  for (Operation &op : llvm::make_early_inc_range(body)) {
    auto gather = dyn_cast<fsdp::AllGatherOp>(op);
    if (!gather) {
      if (!isWeightAlias(&op) && !isa<fsdp::EnterOp>(op))
        open = nullptr;
      continue;
    }
    if (!open || !haveSameMarks(open, gather) ||
        !mayFuse(open, gather,
                 bytesOf(open.getResultTypes()) +
                     bytesOf(gather.getResultTypes()))) {
      open = gather;
      continue;
    }
    // Built at the place of the earlier one. A result's users all come later,
    // so each operand still precedes its users.
    OpBuilder builder(open);
    SmallVector<Type> types(open.getResultTypes());
    types.append(gather->result_type_begin(), gather->result_type_end());
    auto both = fsdp::AllGatherOp::create(
        builder, open.getLoc(), types,
        concat(open.getLayouts(), gather.getLayouts()),
        open.getKeepSecondaryAttr(), open.getFromSecondaryAttr());
    // Unit and direction are those of the earlier one.
    both->setDiscardableAttrs(open->getDiscardableAttrDictionary());
    unsigned count = open->getNumResults();
    open->replaceAllUsesWith(both.getResults().take_front(count));
    gather->replaceAllUsesWith(both.getResults().drop_front(count));
    open.erase();
    gather.erase();
    open = both;
    ++fused;
  }
  return fused;
}

// The earlier reduction joins the later one, since both sources must be
// complete. Buckets of oss are as large as they are meant to be. Returns how
// many reductions were saved.
int64_t fuseReductions(Block &body, const SymbolTable &symbols,
                       const fsdp::CompileOptions &options) {
  auto isBucket = [&](fsdp::ReduceScatterOp reduce) {
    auto layout = symbols.lookup<fsdp::LayoutOp>(
        reduce.getLayoutRefs().front().getAttr());
    return fsdp::hasOwner(layout, options);
  };
  int64_t fused = 0;
  fsdp::ReduceScatterOp open;
  for (Operation &op : llvm::make_early_inc_range(body)) {
    auto reduce = dyn_cast<fsdp::ReduceScatterOp>(op);
    if (!reduce) {
      // A pack writes nowhere else than into its own buffer, so the reduction
      // of an earlier pack may wait for it.
      if (!isa<fsdp::PackOp, fsdp::EnterOp, fsdp::ExitOp, fsdp::FreeOp>(op))
        open = nullptr;
      continue;
    }
    if (isBucket(reduce)) {
      open = nullptr;
      continue;
    }
    if (open && mayFuse(open, reduce,
                        bytesOf(open.getGradients().getTypes()) +
                            bytesOf(reduce.getGradients().getTypes()))) {
      SmallVector<Value> gradients(open.getGradients());
      llvm::append_range(gradients, reduce.getGradients());
      reduce.setLayoutsAttr(concat(open.getLayouts(), reduce.getLayouts()));
      reduce.getGradientsMutable().assign(gradients);
      open.erase();
      ++fused;
    }
    open = reduce;
  }
  return fused;
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
    for (func::FuncOp function : *functions)
      fused += fuseGathers(function.front()) +
               fuseReductions(function.front(), symbols, options);
  }
};

} // namespace
} // namespace fsdpc::passes
