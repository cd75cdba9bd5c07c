// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Gathers the sharded parameters of a unit before the first of its readers and
// frees them after the last, as FSDP does around a module's forward and
// backward.
#include "passes/collectives/Gathers.h"
#include "passes/collectives/Segments.h"

#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "llvm/ADT/MapVector.h"

namespace fsdpc::passes {

using namespace mlir;

namespace {

// Where every rank keeps the compute copy, a view of it replaces the gather.
// Leaves the flat buffers of the other layouts, and returns true if there are
// any.
bool keepWhole(ModuleOp module, Block &body) {
  SymbolTable symbols(module);
  // One fsdp.replicated per layout, at its first use: it costs nothing and
  // lives as long as the function.
  llvm::StringMap<Value> wholes;
  bool left = false;
  for (auto flat : llvm::make_early_inc_range(body.getOps<fsdp::FlatOp>())) {
    if (!fsdp::keepsWhole(symbols.lookup<fsdp::LayoutOp>(flat.getLayout()),
                          "compute")) {
      left = true;
      continue;
    }
    Value &whole = wholes[flat.getLayout()];
    if (!whole) {
      OpBuilder builder(flat);
      auto op = fsdp::ReplicatedOp::create(builder, flat.getLoc(),
                                           flat.getResult().getType(),
                                           flat.getLayoutAttr());
      copyPlace(flat, op);
      whole = op.getResult();
    }
    flat.replaceAllUsesWith(whole);
    flat.erase();
  }
  return left;
}

// Inserts gathers for each run of weight-reading ops of one unit.
// Weights that are replicated are read as they are, but their readers end runs
// too.
class Gatherer {
public:
  Gatherer(ModuleOp module, const fsdp::CompileOptions &options, Block &body)
      : symbols(module), options(options), body(body) {}

  // With `reshard`, gathers of a layout after the first one read what that kept
  // (--reshard-to).
  int64_t run(bool reshard) {
    // Both in program order.
    SmallVector<Operation *> readers, aliases;
    for (Operation &op : body) {
      if (readsWeights(&op))
        readers.push_back(&op);
      else if (isWeightAlias(&op))
        aliases.push_back(&op);
    }
    for (auto *it = readers.begin(); it != readers.end();) {
      auto *end = std::find_if(it, readers.end(), [&](Operation *op) {
        return getUnit(op) != getUnit(*it);
      });
      gatherRun({it, end});
      it = end;
    }
    // Last first: a view of a view is erased before what it views.
    for (Operation *alias : llvm::reverse(aliases))
      if (alias->use_empty())
        alias->erase();
    if (reshard)
      keepSecondary();
    return gathers;
  }

private:
  // The readers of a layout within a run, and its gather once that exists.
  struct Use {
    Operation *first, *last;
    Value gathered;
  };

  // Returns the flat buffer behind a chain of views, or null if the value is
  // not a sharded weight.
  static fsdp::FlatOp flatBehind(Value value) {
    Operation *op = value.getDefiningOp();
    while (isWeightAlias(op) && op->getNumOperands() != 0)
      op = op->getOperand(0).getDefiningOp();
    return dyn_cast_or_null<fsdp::FlatOp>(op);
  }

  // Gathers the layouts that a run reads before its first reader, frees each
  // after its last reader, and makes the readers use the gathered buffers.
  void gatherRun(ArrayRef<Operation *> readers) {
    FlatSymbolRefAttr unit = getUnit(readers.front());
    // In the order of first use, which is the order of the gathers.
    llvm::MapVector<StringRef, Use> uses;
    for (Operation *op : readers)
      for (Value operand : op->getOperands())
        if (fsdp::FlatOp flat = flatBehind(operand)) {
          auto [it, inserted] =
              uses.try_emplace(flat.getLayout(), Use{op, op, {}});
          it->second.last = op;
        }
    // The unit's own layouts are gathered together; those of another unit (tied
    // weights) where they are read. The common gather stands before the first
    // reader of all.
    auto own = llvm::find_if(
        uses, [&](auto &entry) { return isOwn(entry.first, unit); });
    Operation *ownFirst = own == uses.end() ? nullptr : own->second.first;
    for (auto &[name, use] : uses) {
      Operation *before = isOwn(name, unit) ? ownFirst : use.first;
      // Each layout has a gather of its own. fuse-small-collectives joins those
      // of one unit.
      OpBuilder builder(before);
      auto layout = symbols.lookup<fsdp::LayoutOp>(name);
      auto gather = fsdp::AllGatherOp::create(
          builder, layout.getLoc(), TypeRange(fsdp::getFlatType(layout)),
          builder.getArrayAttr({FlatSymbolRefAttr::get(layout)}),
          /*keep_secondary=*/UnitAttr(), /*from_secondary=*/UnitAttr());
      copyPlace(before, gather);
      use.gathered = gather.getResult(0);
      builder.setInsertionPointAfter(use.last);
      auto free = fsdp::FreeOp::create(builder, layout.getLoc(), use.gathered);
      copyPlace(use.last, free);
      ++gathers;
    }
    // Each run reads through views of its own gather, and the old views are
    // left without users.
    llvm::DenseMap<Value, Value> copies;
    for (Operation *op : readers)
      for (OpOperand &operand : op->getOpOperands())
        if (flatBehind(operand.get()))
          operand.set(copyAlias(operand.get(), op, uses, copies));
  }

  // Parameters do not change within a microbatch. A layout that is gathered
  // once needs no secondary shard.
  void keepSecondary() {
    // By layout, in program order: its first gather keeps what the later ones
    // read.
    llvm::StringMap<fsdp::AllGatherOp> first;
    for (auto gather : body.getOps<fsdp::AllGatherOp>()) {
      // fuse-small-collectives has not joined gathers yet.
      auto layout = symbols.lookup<fsdp::LayoutOp>(
          gather.getLayoutRefs().front().getValue());
      if (!fsdp::mayReshard(layout, options))
        continue;
      auto [known, isFirst] = first.try_emplace(layout.getSymName(), gather);
      if (isFirst)
        continue;
      layout.setSecondary(true);
      known->second.setKeepSecondary(true);
      gather.setFromSecondary(true);
    }
  }

  bool isOwn(StringRef layout, FlatSymbolRefAttr unit) {
    return symbols.lookup<fsdp::LayoutOp>(layout).getUnitAttr() == unit;
  }

  // Copies the views behind `value` to the front of `user`, based on the gather
  // of this run.
  Value copyAlias(Value value, Operation *user,
                  llvm::MapVector<StringRef, Use> &uses,
                  llvm::DenseMap<Value, Value> &copies) {
    if (auto flat = value.getDefiningOp<fsdp::FlatOp>())
      return uses.find(flat.getLayout())->second.gathered;
    if (Value copy = copies.lookup(value))
      return copy;
    Operation *op = value.getDefiningOp();
    Value source = copyAlias(op->getOperand(0), user, uses, copies);
    Operation *copy = OpBuilder(user).clone(*op);
    copy->setOperand(0, source);
    // The view follows the unit and direction of its reader: it was copied from
    // a place that may belong to another run.
    copyPlace(user, copy);
    return copies[value] = copy->getResult(0);
  }

  SymbolTable symbols;
  const fsdp::CompileOptions &options;
  Block &body;
  int64_t gathers = 0;
};

} // namespace

int64_t gatherParameters(ModuleOp module, const fsdp::CompileOptions &options,
                         Block &body, bool reshard) {
  return keepWhole(module, body) ? Gatherer(module, options, body).run(reshard)
                                 : 0;
}

} // namespace fsdpc::passes
