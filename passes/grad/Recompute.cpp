// Recomputes activations in the backward instead of keeping them. By default
// only cheap ones are (selective activation recomputation, Korthikanti et al.,
// 2022), chosen like a min-cut partitioner would, but greedily and within a
// unit. Optionally it is everything inside a unit (activation checkpointing,
// Chen et al., 2016), for all units or for some.
#include "passes/grad/Passes.h"
#include "passes/grad/WeightDerived.h"

#include "compiler/dialects/fsdp/Names.h"
#include "compiler/dialects/fsdp/Options.h"
#include "compiler/dialects/nn/Build.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace fsdpc::passes {
#define GEN_PASS_DEF_RECOMPUTE
#include "passes/grad/Passes.h.inc"

namespace {

int64_t bytesOf(Value value) {
  RankedTensorType type = nn::tensorType(value);
  return type.getNumElements() * ((type.getElementTypeBitWidth() + 7) / 8);
}

// Products are never recomputed by default: their cost is compute, not memory
// traffic, so the bytes that `pays` counts would say nothing.
bool isProduct(Operation *op) {
  auto call = dyn_cast<nn::LibraryCallOpInterface>(op);
  return call && call.getFlops() > 0;
}

/// Returns true for ops that make one pass over memory and give the same bits
/// each time.
bool isCheap(Operation *op) {
  return isa<nn::ElementwiseOpInterface>(op) ||
         op->hasTrait<nn::CheapToRepeat>();
}

/// Returns the value whose memory is read when `value` is: reshapes are views,
/// and broadcasts of the forward are repeated where they are read.
Value storageOf(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (isBackward(op) || !isa<nn::ReshapeOp, nn::BroadcastOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

/// The cost of computing an op in the backward.
struct Chain {
  SmallVector<Operation *> ops; // the op and its producers, producers first
  SmallVector<Value> saved;     // values kept from the forward for it only
  int64_t savedBytes = 0;
};

// Chooses ops of the forward that the backward computes again. It reads the
// function as it was on construction; the clones are made by the caller
// afterwards.
class Chooser {
public:
  explicit Chooser(Block &body);

  /// Adds the cheap ops that pay to the choice.
  void chooseCheap();
  /// Adds all ops of these units whose results only their own unit reads.
  void chooseUnits(const DenseSet<Attribute> &units);
  /// Returns the ops to recompute.
  const llvm::SetVector<Operation *> &choice() const { return chosen; }

private:
  bool isKept(Value value) const { return kept.contains(value); }
  bool isInner(Operation *op) const;
  bool isCandidate(Operation *op) const;
  bool pays(Operation *op, const Chain &chain) const;
  Chain reach(Operation *op, unsigned depth) const;
  void reach(Value value, Attribute unit, unsigned depth, Chain &chain) const;

  Block &body;
  Origins origins;
  // The last product of the forward. Values after it are kept for a moment
  // only.
  Operation *lastProduct = nullptr;
  // Ops whose results lead to a product of the forward, directly or not.
  DenseSet<Operation *> feedsProduct;
  /// The readers of each memory, and the memory that the backward reads.
  DenseMap<Value, SmallVector<Operation *>> readers;
  DenseSet<Value> kept;
  llvm::SetVector<Operation *> chosen;
};

// Collects the readers of each memory, the values that the backward reads, and
// the ops that feed a product of the forward.
Chooser::Chooser(Block &body) : body(body), origins(body) {
  for (Operation &op : body) {
    if (!isBackward(&op) && isProduct(&op))
      lastProduct = &op;
    if (!isBackward(&op) && isa<nn::ReshapeOp, nn::BroadcastOp>(op))
      continue; // its readers count
    for (Value operand : op.getOperands()) {
      Value storage = storageOf(operand);
      readers[storage].push_back(&op);
      // Constants and values of weights are not kept: rematerialise-weights
      // clones them into the backward.
      Operation *source = storage.getDefiningOp();
      if (isBackward(&op) && source && !isBackward(source) &&
          origins.of(storage) == Origin::Data)
        kept.insert(storage);
    }
  }
  for (Operation &op : llvm::reverse(body))
    if (!isBackward(&op) && llvm::any_of(op.getUsers(), [&](Operation *user) {
          return !isBackward(user) &&
                 (isProduct(user) || feedsProduct.contains(user));
        }))
      feedsProduct.insert(&op);
}

/// Returns true if the op's results would otherwise be kept from a product of
/// the forward to the backward of the op's own unit. Values that only lead to
/// the loss are excluded: they are not kept for long, and with mixed precision
/// a copy would have another type.
bool Chooser::isCandidate(Operation *op) const {
  if (isBackward(op) || !isCheap(op) || !feedsProduct.contains(op) ||
      origins.of(op->getResult(0)) != Origin::Data)
    return false;
  return llvm::any_of(op->getResults(), [&](Value v) { return isKept(v); }) &&
         llvm::all_of(op->getResults(), [&](Value result) {
           auto found = readers.find(result);
           return found == readers.end() ||
                  llvm::all_of(found->second, [&](Operation *reader) {
                    return isBackward(reader)
                               ? unitOf(reader) == unitOf(op)
                               : reader->isBeforeInBlock(lastProduct);
                  });
         });
}

/// Returns true if only the op's unit reads its results, and the op can run
/// twice. After the last product the backward begins at once, so nothing is
/// gained there. What leads to the loss and to no product is computed in f32
/// under mixed precision, and a copy in the backward would not be.
bool Chooser::isInner(Operation *op) const {
  if (isBackward(op) || !lastProduct || !op->isBeforeInBlock(lastProduct) ||
      !isMemoryEffectFree(op) || op->getNumResults() == 0 ||
      (!isProduct(op) && !feedsProduct.contains(op)) ||
      op->hasTrait<fsdp::FixedPerMicrobatch>() ||
      isa<nn::LinearCrossEntropyOp>(op) ||
      origins.of(op->getResult(0)) != Origin::Data)
    return false;
  return llvm::all_of(op->getResults(), [&](Value result) {
    auto found = readers.find(result);
    return found == readers.end() ||
           llvm::all_of(found->second, [&](Operation *reader) {
             return unitOf(reader) == unitOf(op);
           });
  });
}

/// Adds to the chain what is missing to read `value` in the backward of `unit`.
void Chooser::reach(Value value, Attribute unit, unsigned depth,
                    Chain &chain) const {
  value = storageOf(value);
  Operation *source = value.getDefiningOp();
  // Nothing is missing if the backward has the value already: because it is
  // kept, recomputed, a constant, or a weight that its unit has gathered.
  if (!source || isKept(value) || chosen.contains(source) ||
      source->hasTrait<fsdp::FixedPerMicrobatch>() ||
      origins.of(value) == Origin::Constant ||
      (origins.of(value) == Origin::Weight && unitOf(source) == unit) ||
      llvm::is_contained(chain.ops, source) ||
      llvm::is_contained(chain.saved, value))
    return;
  // Bounds the search, which branches at each op.
  constexpr unsigned deepest = 4;
  if (isCheap(source) && feedsProduct.contains(source) &&
      unitOf(source) == unit && depth < deepest) {
    // Computing the producer too pays if its own inputs are smaller than the
    // value.
    Chain longer = reach(source, depth + 1);
    if (longer.savedBytes < bytesOf(value)) {
      llvm::append_range(chain.ops, longer.ops);
      llvm::append_range(chain.saved, longer.saved);
      chain.savedBytes += longer.savedBytes;
      return;
    }
  }
  chain.saved.push_back(value);
  chain.savedBytes += bytesOf(value);
}

Chain Chooser::reach(Operation *op, unsigned depth) const {
  Chain chain;
  for (Value operand : op->getOperands())
    reach(operand, unitOf(op), depth, chain);
  chain.ops.push_back(op);
  return chain;
}

/// Returns true if fewer bytes are kept, and not too many bytes are moved for
/// each. `freed` counts what is no longer kept less what the chain keeps
/// instead; `moved` counts each op of the chain as a pass over its operands and
/// results. A norm of which only the statistics are kept is not recomputed.
bool Chooser::pays(Operation *op, const Chain &chain) const {
  constexpr int64_t movedPerByte = 4;
  int64_t freed = -chain.savedBytes, moved = 0;
  for (Value result : op->getResults())
    freed += isKept(result) ? bytesOf(result) : 0;
  for (Operation *each : chain.ops) {
    for (Value value : each->getOperands())
      if (isa<RankedTensorType>(value.getType()))
        moved += bytesOf(storageOf(value));
    for (Value value : each->getResults())
      moved += bytesOf(value);
  }
  return freed > 0 && moved <= movedPerByte * freed;
}

// Afterwards the chosen results are no longer kept, but what their ops read
// from outside of the choice is, which chooseCheap takes into account.
void Chooser::chooseUnits(const DenseSet<Attribute> &units) {
  for (Operation &op : body)
    if (units.contains(unitOf(&op)) && isInner(&op))
      chosen.insert(&op);
  for (Operation *op : chosen) {
    for (Value result : op->getResults())
      kept.erase(result);
    for (Value operand : op->getOperands()) {
      Value storage = storageOf(operand);
      Operation *source = storage.getDefiningOp();
      if (source && !chosen.contains(source) &&
          origins.of(storage) == Origin::Data)
        kept.insert(storage);
    }
  }
}

// Greedy, in program order: a decision changes what is kept, which later
// decisions take into account.
void Chooser::chooseCheap() {
  if (!lastProduct)
    return;
  for (Operation &op : body) {
    if (chosen.contains(&op) || !isCandidate(&op))
      continue;
    Chain chain = reach(&op, 0);
    if (!pays(&op, chain))
      continue;
    // The chain's ops are recomputed with the op, so they count as available to
    // later ones, and its saved inputs as kept.
    chosen.insert_range(chain.ops);
    kept.insert_range(chain.saved);
    for (Value result : op.getResults())
      kept.erase(result);
  }
}

// Returns the units that --recompute-scope names, or all without that option.
FailureOr<DenseSet<Attribute>> findUnits(ModuleOp module,
                                         const fsdp::CompileOptions &options) {
  auto patterns = fsdp::NamePatterns::compile(
      module.getLoc(), "recompute-scope", options.recomputeScope.texts);
  if (failed(patterns))
    return failure();
  DenseSet<Attribute> units;
  SmallVector<StringRef> names;
  for (auto unit : module.getOps<fsdp::UnitOp>()) {
    names.push_back(unit.getSymName());
    if (patterns->empty() || patterns->match(unit.getSymName()))
      units.insert(FlatSymbolRefAttr::get(unit));
  }
  if (failed(patterns->checkUsed(module.getLoc(), names, "unit")))
    return failure();
  return units;
}

struct Recompute : impl::RecomputeBase<Recompute> {
  void runOnOperation() override {
    FunctionOpInterface function = lookupMicrobatch(getOperation());
    if (!function)
      return signalPassFailure();
    fsdp::CompileOptions options = fsdp::CompileOptions::of(getOperation());
    if (options.recompute == fsdp::RecomputeLevel::None)
      return;
    Block &body = function.getFunctionBody().front();
    Chooser chooser(body);
    if (options.recompute == fsdp::RecomputeLevel::Units) {
      FailureOr<DenseSet<Attribute>> units = findUnits(getOperation(), options);
      if (failed(units))
        return signalPassFailure();
      chooser.chooseUnits(*units);
    }
    // Units that --recompute-scope leaves out are treated as by default.
    if (options.recompute == fsdp::RecomputeLevel::Cheap ||
        !options.recomputeScope.texts.empty())
      chooser.chooseCheap();
    const llvm::SetVector<Operation *> &chosen = chooser.choice();
    SmallVector<Operation *> backward;
    for (Operation &op : body)
      if (isBackward(&op))
        backward.push_back(&op);
    IRMapping clones;
    auto isCloned = [&](Value value) {
      Operation *storage = storageOf(value).getDefiningOp();
      return storage && chosen.contains(storage);
    };
    // Forward ops stay where they are; only readers in the backward turn to the
    // clones.
    for (Operation *op : backward)
      for (OpOperand &operand : op->getOpOperands())
        operand.set(cloneChain(operand.get(), op, isCloned, clones, numClones));
  }
};

} // namespace
} // namespace fsdpc::passes
