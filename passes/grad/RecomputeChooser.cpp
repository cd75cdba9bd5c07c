// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses what the backward computes again: the cheap ops of a unit that pay,
// as a min-cut partitioner would, but greedily and within the unit; or ops
// that the caller names, such as all ops of a unit.
#include "passes/grad/RecomputeChooser.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/LossOps.h"
#include "compiler/dialects/nn/Products.h"
#include "compiler/options/NamePatterns.h"
#include "compiler/options/Options.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// Products are never recomputed by default: their cost is compute, not memory
// traffic, so the bytes that `pays` counts would say nothing.
bool isProduct(Operation *op) {
  auto call = dyn_cast<nn::LibraryCallOpInterface>(op);
  return call && call.getFlops() > 0;
}

} // namespace

/// Returns true for ops that make one pass over memory and give the same bits
/// each time.
bool RecomputeChooser::isCheap(Operation *op) const {
  return (isa<nn::ElementwiseOpInterface>(op) ||
          op->hasTrait<nn::CheapToRepeat>()) &&
         !productOf(op);
}

/// A product that computes GELU has the sums before they are rounded, so GELU
/// has the same bits again only together with its product.
Operation *RecomputeChooser::productOf(Operation *op) const {
  auto gelu = dyn_cast<nn::GeluOp>(op);
  return fusesProducts && gelu ? nn::endedProduct(gelu).getOperation()
                               : nullptr;
}

int64_t fsdpc::passes::denseBytes(Value value) {
  return nn::tensorBytes(value.getType());
}

Value fsdpc::passes::storageOf(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (isBackward(op) || !op->hasTrait<nn::ReadAsOperand>())
      break;
    value = op->getOperand(0);
  }
  return value;
}

// Collects the readers of each memory, the values that the backward reads, and
// the ops that feed a product of the forward.
RecomputeChooser::RecomputeChooser(Block &body) : body(body), origins(body) {
  auto options =
      fsdp::CompileOptions::of(body.getParentOp()->getParentOfType<ModuleOp>());
  fusesProducts = options.isFast() && options.paramType != ElementType::f32;
  for (Operation &op : body) {
    if (!isBackward(&op) && isProduct(&op))
      lastProduct = &op;
    if (!isBackward(&op) && op.hasTrait<nn::ReadAsOperand>())
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
  // From the end, so that users are known before what feeds them.
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
bool RecomputeChooser::isCandidate(Operation *op) const {
  if (isBackward(op) || !isCheap(op) || !feedsProduct.contains(op) ||
      origins.of(op->getResult(0)) != Origin::Data)
    return false;
  // The forward's readers must stand before the last product: a value that is
  // read later is in memory anyway.
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

bool RecomputeChooser::isKeepable(Value value) const {
  return value.getDefiningOp() && origins.of(value) == Origin::Data;
}

/// After the last product the backward begins at once, so nothing is
/// gained there. What leads to the loss and to no product is computed in f32
/// under mixed precision, and a copy in the backward would not be.
bool RecomputeChooser::isInner(Operation *op) const {
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
void RecomputeChooser::reach(Value value, Attribute unit, unsigned depth,
                             RecomputeChain &chain) const {
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
    RecomputeChain longer = reach(source, depth + 1);
    if (longer.savedBytes < denseBytes(value)) {
      llvm::append_range(chain.ops, longer.ops);
      llvm::append_range(chain.saved, longer.saved);
      chain.savedBytes += longer.savedBytes;
      return;
    }
  }
  chain.saved.push_back(value);
  chain.savedBytes += denseBytes(value);
}

RecomputeChain RecomputeChooser::reach(Operation *op, unsigned depth) const {
  RecomputeChain chain;
  for (Value operand : op->getOperands())
    reach(operand, unitOf(op), depth, chain);
  chain.ops.push_back(op);
  return chain;
}

/// Returns true if fewer bytes are kept, and not too many bytes are moved for
/// each. `freed` counts what is no longer kept less what the chain keeps
/// instead; `moved` counts each op of the chain as a pass over its operands and
/// results. A norm of which only the statistics are kept is not recomputed.
bool RecomputeChooser::pays(Operation *op, const RecomputeChain &chain) const {
  constexpr int64_t movedPerByte = 4;
  int64_t freed = -chain.savedBytes, moved = 0;
  for (Value result : op->getResults())
    freed += isKept(result) ? denseBytes(result) : 0;
  for (Operation *each : chain.ops) {
    for (Value value : each->getOperands())
      if (isa<RankedTensorType>(value.getType()))
        moved += denseBytes(storageOf(value));
    for (Value value : each->getResults())
      moved += denseBytes(value);
  }
  return freed > 0 && moved <= movedPerByte * freed;
}

// Afterwards the chosen results are no longer kept, but what their ops read
// from outside of the choice is, which chooseCheap takes into account.
void RecomputeChooser::choose(ArrayRef<Operation *> ops) {
  for (Operation *op : ops)
    if (!productOf(op))
      chosen.insert(op);
  // A GELU that its product computes goes with it.
  for (Operation &op : body)
    if (Operation *product = productOf(&op);
        product && isInner(&op) && chosen.contains(product) &&
        chosen.contains(op.getOperand(0).getDefiningOp()))
      chosen.insert(&op);
  // All choices are made by now, so what one chosen op reads of another is not
  // kept.
  for (Operation *op : chosen) {
    for (Value result : op->getResults())
      kept.erase(result);
    for (Value operand : op->getOperands()) {
      Value storage = storageOf(operand);
      if (isKeepable(storage) && !chosen.contains(storage.getDefiningOp()))
        kept.insert(storage);
    }
  }
}

// Greedy, in program order: a decision changes what is kept, which later
// decisions take into account.
void RecomputeChooser::chooseCheap() {
  if (!lastProduct)
    return;
  for (Operation &op : body) {
    if (chosen.contains(&op) || !isCandidate(&op))
      continue;
    RecomputeChain chain = reach(&op, 0);
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

FailureOr<DenseSet<Attribute>> fsdpc::passes::unitsInScope(ModuleOp module) {
  fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
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
