// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// offload-activations: has activations lie in a file between forward and
// backward (--offload=activations). Values are written together if they were
// last read in one segment of the forward and are first read again in one
// segment of the backward, so that the schedule moves few large pieces. The
// pass stands before the schedule, which decides when each piece moves; nothing
// that is computed changes. torch's save_on_cpu and DeepSpeed's
// cpu_checkpointing choose the same values at run time.
#include "compiler/dialects/nn/ElementBytes.h"
#include "passes/collectives/Passes.h"
#include "passes/collectives/Segments.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Offloads.h"
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/Interfaces.h"
#include "compiler/dialects/nn/Strided.h"
#include "compiler/options/Options.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_OFFLOADACTIVATIONS
#include "passes/collectives/Passes.h.inc"

using namespace mlir;

namespace {

// Smaller values stay in memory, as in torchtune: a call for each costs more
// than they take.
constexpr int64_t kLeastBytes = 1024;

// Returns the value whose memory `value` is a view of.
Value storageOf(Value value) {
  while (auto view = value.getDefiningOp<nn::ViewOpInterface>())
    value = view.getViewSource();
  return value;
}

// Returns true if the op gives its results memory of their own in the arena,
// where their elements lie dense.
bool isProducer(Operation *op) {
  auto call = dyn_cast<nn::LibraryCallOpInterface>(op);
  return !isa<nn::ViewOpInterface>(op) && !op->hasTrait<nn::HoldsOperands>() &&
         !op->hasTrait<nn::OutsideArena>() &&
         !op->hasTrait<fsdp::HoldsWeights>() && !nn::isStrided(op) &&
         !(call && call.writesStrides());
}

// Returns true if the op gives the memory of `value` to another value: then the
// two lie together, and neither can leave alone.
bool sharesMemory(Operation *user, Value value) {
  auto call = dyn_cast<nn::LibraryCallOpInterface>(user);
  return user->hasTrait<nn::HoldsOperands>() ||
         (call && call.getOverwritten() &&
          storageOf(call.getOverwritten()) == value);
}

// The two parts of @microbatch, and the segments of its ops, numbered through
// both.
class Halves {
public:
  explicit Halves(Block &body) {
    int segment = 0;
    bool backward = false;
    for (Operation &op : body) {
      if (auto enter = dyn_cast<fsdp::EnterOp>(op)) {
        ++segment;
        backward |= enter.getBackward();
      }
      places[&op] = {segment, backward};
    }
  }
  int segmentOf(Operation *op) const { return places.lookup(op).first; }
  bool isBackward(Operation *op) const { return places.lookup(op).second; }

private:
  DenseMap<Operation *, std::pair<int, bool>> places;
};

// A value that leaves: its last reader in the forward, which may be the op
// itself, and its first one in the backward.
struct Leaving {
  Value value;
  Operation *last, *first;
};

// Finds the readers of the value's memory. Returns nothing if the value must
// stay: the backward does not read it, its memory is not its own, or no whole
// segment lies between the two readers, so that nothing would be gained.
std::optional<Leaving> leavingOf(OpResult value, const Halves &halves) {
  Leaving found{value, value.getOwner(), nullptr};
  SmallVector<Value> views = {value};
  while (!views.empty())
    for (Operation *user : views.pop_back_val().getUsers()) {
      if (isa<nn::ViewOpInterface>(user)) {
        views.push_back(user->getResult(0));
        continue;
      }
      if (sharesMemory(user, value))
        return std::nullopt;
      if (!halves.isBackward(user)) {
        if (found.last->isBeforeInBlock(user))
          found.last = user;
      } else if (!found.first || user->isBeforeInBlock(found.first)) {
        found.first = user;
      }
    }
  bool gains = found.first &&
               halves.segmentOf(found.first) - halves.segmentOf(found.last) > 1;
  return gains ? std::optional(found) : std::nullopt;
}

// Values that move together.
struct Piece {
  SmallVector<Value> values;
  Operation *last = nullptr, *first = nullptr;

  void add(const Leaving &leaving) {
    values.push_back(leaving.value);
    if (!last || last->isBeforeInBlock(leaving.last))
      last = leaving.last;
    if (!first || leaving.first->isBeforeInBlock(first))
      first = leaving.first;
  }
};

struct OffloadActivations : impl::OffloadActivationsBase<OffloadActivations> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!fsdp::CompileOptions::of(module).offload.activations)
      return markAllAnalysesPreserved();
    FailureOr<func::FuncOp> function = fsdp::getMicrobatch(module);
    if (failed(function))
      return signalPassFailure();
    Block &body = function->front();
    Halves halves(body);
    llvm::MapVector<std::pair<int, int>, Piece> pieces;
    for (Operation &op : body) {
      if (halves.isBackward(&op) || !isProducer(&op))
        continue;
      for (OpResult value : op.getResults())
        if (isa<RankedTensorType>(value.getType()) &&
            nn::tensorBytes(value.getType()) >= kLeastBytes)
          if (std::optional<Leaving> leaving = leavingOf(value, halves))
            pieces[{halves.segmentOf(leaving->last),
                    halves.segmentOf(leaving->first)}]
                .add(*leaving);
    }
    if (pieces.empty()) {
      emitError(module.getLoc())
          << "--offload=activations has no effect: the backward reads no "
             "activation of "
          << kLeastBytes
          << " bytes or more after another unit has run; use smaller units "
             "(--unit-class)";
      return signalPassFailure();
    }
    for (auto &[segments, piece] : pieces)
      move(piece, halves);
    // Only now: `halves` knows ops by their addresses, which others would take.
    for (Operation *view : views)
      if (view->use_empty())
        view->erase();
  }

  // Inserts both ops, and turns the backward's readers to what is fetched.
  void move(const Piece &piece, const Halves &halves) {
    OpBuilder builder(piece.last->getContext());
    builder.setInsertionPointAfter(piece.last);
    Location location = piece.last->getLoc();
    auto held = fsdp::OffloadOp::create(
        builder, location, fsdp::OffloadedType::get(builder.getContext()),
        piece.values);
    copyPlace(piece.last, held);
    builder.setInsertionPoint(piece.first);
    auto fetch =
        fsdp::FetchOp::create(builder, piece.first->getLoc(),
                              TypeRange(ValueRange(piece.values)), held);
    copyPlace(piece.first, fetch);
    ++offloads;
    for (auto [value, fetched] :
         llvm::zip_equal(piece.values, fetch.getResults())) {
      bytes += nn::tensorBytes(value.getType());
      turnReaders(builder, value, fetched, fetch, halves);
    }
  }

  // Views are made anew behind the fetch, since those that the backward has may
  // stand before it.
  void turnReaders(OpBuilder &builder, Value value, Value fetched,
                   Operation *fetch, const Halves &halves) {
    for (OpOperand &use : llvm::make_early_inc_range(value.getUses())) {
      Operation *user = use.getOwner();
      if (!isa<nn::ViewOpInterface>(user)) {
        if (halves.isBackward(user))
          use.set(fetched);
        continue;
      }
      Operation *view = builder.clone(*user);
      view->setOperand(use.getOperandNumber(), fetched);
      copyPlace(fetch, view);
      turnReaders(builder, user->getResult(0), view->getResult(0), fetch,
                  halves);
      views.append({view, user});
    }
  }

  // Views, old and new ones, that may have no readers; a view of another one
  // comes before it.
  SmallVector<Operation *> views;
};

} // namespace
} // namespace fsdpc::passes
