// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules of gathered buffers. ZeRO-3 saves memory only if a unit's weights
// are freed before the next unit reads its own, so a life that spans two units
// is an error here, although it would compute the same. Two arrays over the
// ops that read weights make each check a comparison.
#include "passes/collectives/GatherLives.h"
#include "passes/collectives/Segments.h"

#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Rules.h"
#include "compiler/dialects/nn/Memory.h"

using namespace mlir;
using fsdpc::fsdp::broken;
using fsdpc::fsdp::nameOrNone;

namespace fsdpc::passes {

// Collects the ops that read the buffer or its views, and its frees.
static void collectUses(Value buffer, SmallVectorImpl<Operation *> &users,
                        SmallVectorImpl<fsdp::FreeOp> &frees) {
  for (Operation *user : buffer.getUsers()) {
    if (auto free = dyn_cast<fsdp::FreeOp>(user)) {
      frees.push_back(free);
      continue;
    }
    users.push_back(user);
    // Views are readers of the same memory, so their users count as well.
    auto view = dyn_cast<nn::ViewOpInterface>(user);
    if (view && view.getViewSource() == buffer)
      collectUses(user->getResult(0), users, frees);
  }
}

// A run ends where the unit of the reader changes. The direction does not
// matter: at the turn from forward to backward the last unit may keep its
// weights.
GatherLives::GatherLives(Block &body) {
  for (Operation &op : body) {
    // An op's own reading does not count as before it.
    readersBefore[&op] = readers.size();
    if (!readsWeights(&op))
      continue;
    bool begins = !readers.empty() && getUnit(readers.back()) != getUnit(&op);
    runs.push_back((runs.empty() ? 0 : runs.back()) + begins);
    readers.push_back(&op);
  }
}

// A scan in program order, so `alive` is what is gathered at `op`.
LogicalResult GatherLives::verify(Operation *op) {
  if (auto gather = dyn_cast<fsdp::AllGatherOp>(op))
    return verifyGather(gather);
  if (auto free = dyn_cast<fsdp::FreeOp>(op);
      free && free.getFlat().getDefiningOp<fsdp::AllGatherOp>())
    alive.erase(fsdp::getLayoutOf(free.getFlat()).getAttr());
  return success();
}

LogicalResult GatherLives::verifyGather(fsdp::AllGatherOp gather) {
  // A gather may fill the buffers of several layouts, and each of them has its
  // own life.
  for (auto [name, buffer] :
       llvm::zip_equal(gather.getLayoutRefs(), gather.getResults())) {
    auto [other, isNew] = alive.try_emplace(name.getAttr(), gather);
    if (!isNew) {
      InFlightDiagnostic diag = broken(gather, "gather-once")
                                << "layout '" << name.getValue()
                                << "' is gathered already and not freed";
      diag.attachNote(other->second.getLoc()) << "gathered here";
      return diag;
    }
    SmallVector<Operation *> users;
    SmallVector<fsdp::FreeOp> frees;
    collectUses(buffer, users, frees);
    if (users.empty())
      return broken(gather, "used")
             << "nothing reads what it gathers of layout '" << name.getValue()
             << "'; remove it";
    if (frees.size() != 1) {
      InFlightDiagnostic diag =
          broken(gather, "free-once")
          << "what it gathers of layout '" << name.getValue() << "' is freed "
          << frees.size() << " times; each gathered buffer is freed once";
      for (fsdp::FreeOp free : llvm::reverse(frees))
        diag.attachNote(free.getLoc()) << "freed here";
      return diag;
    }
    for (Operation *user : users)
      if (!user->isBeforeInBlock(frees[0])) {
        InFlightDiagnostic diag = broken(frees[0], "free-after-use")
                                  << "it frees what is used after it";
        diag.attachNote(user->getLoc()) << "used here";
        return diag;
      }
    if (failed(verifyRun(gather, frees[0])))
      return failure();
  }
  return success();
}

// From the gather to the free only one unit reads weights: the unit of both.
LogicalResult GatherLives::verifyRun(fsdp::AllGatherOp gather,
                                     fsdp::FreeOp free) {
  // The readers from the gather to the free are [first, end).
  unsigned first = readersBefore.lookup(gather);
  unsigned end = readersBefore.lookup(free);
  if (first == end)
    return broken(gather, "used") << "no op computes with what it gathers";
  FlatSymbolRefAttr unit = getUnit(readers[first]);
  // The run of the first reader must be that of the last one before the free.
  // On an error, the first reader of another unit is named.
  if (runs[first] != runs[end - 1]) {
    auto other = llvm::find_if(
        ArrayRef(readers).slice(first, end - first),
        [&](Operation *reader) { return getUnit(reader) != unit; });
    InFlightDiagnostic diag = broken(gather, "kept")
                              << "from here to the free of what it gathers "
                                 "units '"
                              << nameOrNone(unit) << "' and '"
                              << nameOrNone(getUnit(*other))
                              << "' read weights";
    diag.attachNote(free.getLoc()) << "freed here";
    diag.attachNote((*other)->getLoc())
        << "unit '" << nameOrNone(getUnit(*other)) << "' reads weights here";
    return diag;
  }
  for (Operation *op : {gather.getOperation(), free.getOperation()}) {
    if (getUnit(op) == unit)
      continue;
    InFlightDiagnostic diag = broken(op, "unit")
                              << "it belongs to unit '"
                              << nameOrNone(getUnit(op)) << "', but unit '"
                              << nameOrNone(unit) << "' reads what is gathered";
    diag.attachNote(readers[first]->getLoc()) << "read here";
    return diag;
  }
  return success();
}

} // namespace fsdpc::passes
