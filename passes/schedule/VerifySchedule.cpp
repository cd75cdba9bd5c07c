// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// verify-schedule: checks a schedule, whoever wrote it, by the model that the
// solver uses, and by rules that the model takes for granted: each collective
// is split, waited for and freed once, and nothing touches its memory
// meanwhile.
#include "passes/schedule/Passes.h"
#include "passes/schedule/Prediction.h"
#include "passes/schedule/ScheduleIR.h"
#include "passes/schedule/ScheduledOps.h"

#include "compiler/analysis/RankMemory.h"
#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/SymbolEffects.h"
#include "compiler/dialects/fsdp/Tokens.h"
#include "compiler/dialects/nn/Interfaces.h"
#include "compiler/options/Options.h"
#include "compiler/schedule/table.h"
#include "runtime/support/output_file.h"

#include "llvm/ADT/StringExtras.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_VERIFYSCHEDULE
#include "passes/schedule/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// Every diagnostic of this pass names the rule, by which tests and documents
// refer to it.
InFlightDiagnostic broken(Operation *op, StringRef rule) {
  return op->emitOpError("violates rule '") << rule << "': ";
}

// ---- rules of single collectives ----

bool isStart(Operation *op) {
  return llvm::any_of(op->getResultTypes(), llvm::IsaPred<fsdp::TokenType>);
}

LogicalResult verifySplit(Operation *op) {
  if (isScheduled(op) && !isa<fsdp::FreeOp>(op) && !isStart(op) &&
      !fsdp::awaitedToken(op))
    return broken(op, "split") << "it is not split into start and wait";
  return success();
}

// Without its wait nothing says when the memory of the collective may be used
// again.
LogicalResult verifyToken(Operation *start) {
  // Users are listed last first, so notes reverse them.
  auto users = llvm::to_vector(start->getResult(0).getUsers());
  if (users.size() == 1)
    return success();
  auto diagnostic = broken(start, "token")
                    << "its token is waited for " << users.size()
                    << " times; each token must be waited for exactly once";
  for (Operation *user : llvm::reverse(users))
    diagnostic.attachNote(user->getLoc()) << "token used here";
  return diagnostic;
}

// Each buffer of a gather or a fetch is checked by itself: it is freed once,
// after all its readers. At least one of them must be read.
LogicalResult verifyFree(Operation *wait) {
  bool used = false;
  for (Value result : wait->getResults()) {
    SmallVector<Operation *> frees;
    for (Operation *user : result.getUsers())
      if (isa<fsdp::FreeOp>(user))
        frees.push_back(user);
    if (frees.size() != 1) {
      auto diagnostic = broken(wait, "free-once")
                        << "a buffer is freed " << frees.size()
                        << " times; each must be freed exactly once";
      for (Operation *free : llvm::reverse(frees))
        diagnostic.attachNote(free->getLoc()) << "freed here";
      return diagnostic;
    }
    for (Operation *user : usersOfMemory(result)) {
      used = true;
      if (user->isBeforeInBlock(frees[0]))
        continue;
      auto diagnostic = broken(frees[0], "free-after-use")
                        << "the buffer is used after it is freed";
      diagnostic.attachNote(user->getLoc()) << "used here";
      return diagnostic;
    }
  }
  if (!used)
    return broken(wait, "used")
           << "the buffers are never read; remove the collective";
  return success();
}

// A value that is written to the file and never read back is an edit gone
// wrong: the backward then reads what memory has.
LogicalResult verifyHeld(fsdp::OffloadWaitOp wait) {
  if (wait.getHeld().use_empty())
    return broken(wait, "used")
           << "nothing fetches what is offloaded; remove the collective";
  return success();
}

// A reduction reads its gradients until its wait, and an offload its values, so
// nothing may overwrite them. Looks at the users of the memory between start
// and wait that write it in place.
LogicalResult verifySource(Operation *start) {
  Operation *wait = *start->getResult(0).user_begin();
  for (Value source : start->getOperands()) {
    // The view's users do not show who overwrites the memory that it is of.
    if (isa<fsdp::OffloadStartOp>(start) &&
        source.getDefiningOp<nn::ViewOpInterface>())
      return broken(start, "source-kept")
             << "its operand is a view; offload the value that it is of";
    for (Operation *user : usersOfMemory(source)) {
      auto call = dyn_cast<nn::LibraryCallOpInterface>(user);
      if (!call || !call.getOverwritten() || !start->isBeforeInBlock(user) ||
          !user->isBeforeInBlock(wait))
        continue;
      auto diagnostic = broken(start, "source-kept")
                        << "its operand is overwritten before its wait";
      diagnostic.attachNote(user->getLoc()) << "overwritten here";
      return diagnostic;
    }
  }
  return success();
}

// ---- symbols as memory ----

// The effects of ops on memory behind symbols. Ops without any have no entry.
using EffectsByOp = DenseMap<Operation *, SmallVector<fsdp::SymbolEffect>>;

FailureOr<EffectsByOp> readEffects(Block &body) {
  EffectsByOp result;
  for (Operation &op : body) {
    auto effects = fsdp::effectsOf(&op);
    if (failed(effects))
      return failure();
    auto symbolEffects = fsdp::symbolEffectsOf(&op, *effects);
    if (failed(symbolEffects))
      return failure();
    if (!symbolEffects->empty())
      result[&op] = std::move(*symbolEffects);
  }
  return result;
}

// The start of the collective that the op starts or waits for, or null.
Operation *startOf(Operation *op) {
  if (Value token = fsdp::awaitedToken(op))
    return token.getDefiningOp();
  return isStart(op) ? op : nullptr;
}

// The effects of the collectives that are in flight, by symbol, so that an op
// is compared with those on its own symbols only.
class InFlight {
public:
  struct Effect {
    Operation *start;
    fsdp::SymbolEffect effect;
    // Counts the effects in the order in which they begin, which the map loses.
    unsigned number;
  };

  void begin(Operation *start, ArrayRef<fsdp::SymbolEffect> effects) {
    for (const fsdp::SymbolEffect &effect : effects)
      bySymbol[symbolOf(effect)].push_back({start, effect, count++});
  }

  void end(Operation *start, ArrayRef<fsdp::SymbolEffect> effects) {
    for (const fsdp::SymbolEffect &effect : effects) {
      auto entry = bySymbol.find(symbolOf(effect));
      if (entry == bySymbol.end())
        continue;
      llvm::erase_if(entry->second,
                     [&](const Effect &its) { return its.start == start; });
      if (entry->second.empty())
        bySymbol.erase(entry);
    }
  }

  // Returns the first effect of a collective that conflicts with the op.
  std::optional<Effect>
  conflictWith(Operation *op, ArrayRef<fsdp::SymbolEffect> effects) const {
    std::optional<Effect> first;
    Operation *own = startOf(op);
    for (const fsdp::SymbolEffect &effect : effects) {
      auto compare = [&](ArrayRef<Effect> others) {
        for (const Effect &other : others)
          // Two gathers, or two reductions, are ordered by their channel.
          if (!(own && own->getName() == other.start->getName()) &&
              fsdp::conflict(effect, other.effect) &&
              (!first || other.number < first->number))
            first = other;
      };
      SymbolRefAttr symbol = symbolOf(effect);
      if (!symbol) {
        for (auto &[each, others] : bySymbol)
          compare(others);
        continue;
      }
      for (SymbolRefAttr each : {symbol, SymbolRefAttr()})
        if (auto entry = bySymbol.find(each); entry != bySymbol.end())
          compare(entry->second);
    }
    return first;
  }

private:
  // Null: the effect may conflict with any.
  static SymbolRefAttr symbolOf(const fsdp::SymbolEffect &effect) {
    bool isOfAny =
        fsdp::isSame(effect.resource, SideEffects::DefaultResource::get());
    return isOfAny ? SymbolRefAttr() : effect.symbol;
  }

  DenseMap<SymbolRefAttr, SmallVector<Effect>> bySymbol;
  unsigned count = 0;
};

// Collectives of one kind run one after another on their channel. Any other op
// that touches the memory of a layout must not do so while a collective on the
// layout is in flight.
LogicalResult verifySymbols(Block &body, const EffectsByOp &effects) {
  InFlight inFlight;
  for (Operation &op : body) {
    if (fsdp::awaitedToken(&op))
      if (auto ended = effects.find(startOf(&op)); ended != effects.end())
        inFlight.end(ended->first, ended->second);
    auto own = effects.find(&op);
    if (own == effects.end())
      continue;
    if (auto other = inFlight.conflictWith(&op, own->second)) {
      const auto &[start, effect, number] = *other;
      auto diagnostic = broken(&op, "symbol-hazard");
      if (fsdp::isSame(effect.resource, fsdp::ActivationFile::get()))
        diagnostic << "it accesses the file of activations while another "
                      "stream does";
      else
        // An effect without a symbol is on the memory of any layout.
        diagnostic << "it accesses memory of layout '"
                   << (effect.symbol
                           ? effect.symbol.getLeafReference().getValue()
                           : "any")
                   << "' while a collective on that layout is in flight";
      diagnostic.attachNote(start->getLoc()) << "collective starts here";
      return diagnostic;
    }
    if (isStart(&op))
      inFlight.begin(&op, own->second);
  }
  return success();
}

// ---- rules of the whole ----

// Structure comes first: reading the problem relies on one wait per token.
LogicalResult verifyStructure(func::FuncOp function) {
  Block &body = function.getBody().front();
  for (Operation &op : body)
    if (failed(verifySplit(&op)) || (isStart(&op) && failed(verifyToken(&op))))
      return failure();
  FailureOr<EffectsByOp> effects = readEffects(body);
  if (failed(effects) || failed(verifySymbols(body, *effects)))
    return failure();
  for (Operation &op : body) {
    if (fsdp::awaitedToken(&op) && hasEffect<MemoryEffects::Allocate>(&op) &&
        failed(verifyFree(&op)))
      return failure();
    if (isStart(&op) && failed(verifySource(&op)))
      return failure();
    if (auto wait = dyn_cast<fsdp::OffloadWaitOp>(op);
        wait && failed(verifyHeld(wait)))
      return failure();
  }
  return success();
}

// Reports the violations of the model of compiler/schedule as diagnostics.
LogicalResult verifyModel(func::FuncOp function, const ScheduleIR &ir) {
  // The solver's own check, so that solver and verifier cannot disagree on what
  // is well-formed.
  if (std::string fault = ir.problem.check(); !fault.empty())
    return function.emitOpError("is not a valid scheduling problem: ") << fault;
  for (const schedule::Violation &violation :
       schedule::verifyPlaces(ir.problem, ir.schedule)) {
    Operation *op = function;
    // The last collective of a violation is that which breaks the rule; the
    // others get notes.
    if (!violation.collectives.empty())
      op = ir.collectives[violation.collectives.back()].first;
    auto diagnostic = broken(op, violation.rule) << violation.message;
    for (int id : violation.collectives)
      if (Operation *other = ir.collectives[id].first; other != op)
        diagnostic.attachNote(other->getLoc()) << "other collective involved";
    return diagnostic;
  }
  return success();
}

struct VerifySchedule
    : fsdpc::passes::impl::VerifyScheduleBase<VerifySchedule> {
  using Base::Base;

  void runOnOperation() override {
    if (failed(verify(getOperation())))
      signalPassFailure();
  }

  LogicalResult writeTable(ModuleOp module, ScheduleIR &ir) const {
    if (tableFile.empty())
      return success();
    // A reader of the table sees the memory that the schedule was judged with.
    ir.problem.baseBytes = analysis::RankMemory(module).total();
    std::string text = schedule::writeTable(ir.problem, ir.schedule);
    if (Status written = writeWhole(tableFile, text.data(), text.size());
        !written)
      return module.emitError("cannot write the table of the schedule: ")
             << written.error().message;
    return success();
  }

  LogicalResult verify(ModuleOp module) {
    // Kernels are functions too, with ops of other dialects.
    for (auto function : module.getOps<func::FuncOp>())
      if (!function->hasAttr("nn.kernel") && failed(verifyStructure(function)))
        return failure();
    auto functions = fsdp::getForwards(module);
    if (failed(functions))
      return failure();
    std::string hash;
    for (func::FuncOp function : *functions) {
      FailureOr<ScheduleIR> ir = readSchedule(function);
      if (failed(ir))
        return failure();
      // The memory cap is left to verify-memory, which knows the packing.
      ir->problem.options.limitAllGathers =
          fsdp::CompileOptions::of(module).limitAllGathers;
      if (failed(verifyModel(function, *ir)))
        return failure();
      // Costs and exposed times are written again, since an edit may have moved
      // a wait.
      annotate(*ir, schedule::simulate(ir->problem, ir->schedule));
      // Tables and predictions are of training only.
      if (function.getSymName() != fsdp::kEvaluate) {
        if (failed(writeTable(module, *ir)))
          return failure();
        writePrediction(module, *ir);
      }
      hash += llvm::utohexstr(schedule::hashStarts(ir->problem, ir->schedule),
                              /*LowerCase=*/true);
    }
    // The ranks compare this hash when they start: ranks with different
    // schedules would wait for each other for ever.
    module->setAttr(fsdp::FSDPDialect::kScheduleHashAttr,
                    StringAttr::get(&getContext(), hash));
    return success();
  }
};

} // namespace
