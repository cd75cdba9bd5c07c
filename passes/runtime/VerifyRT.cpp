// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// verify-rt: proves that the program has no races and stays within its memory.
// Two commands of different queues (StreamClocks.h) that touch the same memory,
// one of them writing, must be ordered by events, which vector clocks decide.
// Each op states the memory that its command touches (MemoryAccesses.h).
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/dialects/fsdp/SymbolEffects.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/options/Options.h"
#include "passes/runtime/MemoryAccesses.h"
#include "passes/runtime/Passes.h"
#include "passes/runtime/Pointers.h"
#include "passes/runtime/StreamClocks.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_VERIFYRT
#include "passes/runtime/Passes.h.inc"
} // namespace fsdpc::passes

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;

namespace {

// The memory that a command touches, and the commands that precede it. Only
// commands that touch memory are kept.
struct Command {
  Operation *op;
  int queue;        // of StreamClocks
  int64_t position; // its place on its queue, from 1
  StreamClocks::Clock before;
  SmallVector<MemoryAccess> accesses;
};

// Returns the commands of another queue that the later command does not wait
// for, which are its last ones: the clock counts those of each queue that
// precede. They are few where streams run side by side for a while only.
ArrayRef<Command> unordered(ArrayRef<Command> commands, const Command &later) {
  const Command *first =
      llvm::partition_point(commands, [&](const Command &earlier) {
        return later.before[earlier.queue] >= earlier.position;
      });
  return {first, commands.end()};
}

// The arena's size, how many bytes a gather may write past its destination, the
// module's symbols and its target.
struct Bounds {
  int64_t arenaBytes;
  int64_t padding;
  const SymbolTable &symbols;
  bool onGpu;
};

// Gradients that are unsummed and gathered parameters are memory of one layout,
// behind which that of others may lie.
LogicalResult verifyWithinLayout(Operation *op, rt::PointerOp pointer,
                                 const SymbolTable &symbols) {
  bool isGradient = pointer.getSpace() == rt::Space::gradient;
  if (!isGradient && pointer.getSpace() != rt::Space::gathered)
    return success();
  StringRef what = isGradient ? "the gradient" : "the gathered parameters";
  auto layout =
      symbols.lookup<fsdp::LayoutOp>(pointer.getSymbolAttr().getAttr());
  if (!layout || (isGradient && !fsdp::isUnsummed(layout)))
    return pointer.emitOpError("points to ")
           << what << " of '" << pointer.getSymbolAttr().getValue()
           << "', which is no layout"
           << (isGradient ? " that is unsummed" : "");
  int64_t bytes = nn::tensorBytes(fsdp::getFlatType(layout));
  int64_t end = pointer.getOffset() + pointer.getBytes();
  if (end > bytes)
    return op->emitOpError("accesses ")
           << what << " of layout '" << layout.getSymName() << "' up to byte "
           << end << " of " << bytes;
  return success();
}

// The runtime chooses where a layout is gathered, and asks only its own
// pointers.
LogicalResult verifyDestinations(rt::AllGatherOp gather) {
  for (auto [layout, destination] :
       llvm::zip(gather.getLayouts().getAsRange<FlatSymbolRefAttr>(),
                 gather.getDestinations())) {
    auto pointer = destination.getDefiningOp<rt::PointerOp>();
    bool isOwn = pointer && (pointer.getSpace() == rt::Space::gathered ||
                             pointer.getSpace() == rt::Space::whole);
    if (!isOwn || pointer.getSymbolAttr() != layout || pointer.getOffset() != 0)
      return gather.emitOpError("gathers '")
             << layout.getValue()
             << "' to what is not the first byte of its own memory (space "
                "'gathered' or 'whole')";
  }
  return success();
}

// Bounds are checked besides races, because the arena is one allocation and
// nothing else would notice an access past its end.
LogicalResult verifyBounds(const Command &command, const Bounds &bounds) {
  for (const MemoryAccess &access : command.accesses)
    if (access.isOfArena() && (access.begin < 0 || access.end < access.begin ||
                               access.end > bounds.arenaBytes))
      return command.op->emitOpError("accesses memory up to byte ")
             << access.end << " of an arena of " << bounds.arenaBytes
             << " bytes";
  for (Value operand : command.op->getOperands())
    if (auto pointer = operand.getDefiningOp<rt::PointerOp>();
        pointer &&
        failed(verifyWithinLayout(command.op, pointer, bounds.symbols)))
      return failure();
  auto gather = dyn_cast<rt::AllGatherOp>(command.op);
  return gather ? verifyDestinations(gather) : success();
}

// The diagnostic names the later command, which is where the missing wait
// belongs.
LogicalResult verifyApart(const Command &earlier, const Command &later) {
  for (const MemoryAccess &before : earlier.accesses)
    for (const MemoryAccess &access : later.accesses) {
      if (!conflict(before, access))
        continue;
      auto diagnostic = later.op->emitOpError("on ")
                        << StreamClocks::describe(later.queue) << " accesses "
                        << access.describe() << " without waiting for "
                        << StreamClocks::describe(earlier.queue)
                        << "; add an event between them";
      diagnostic.attachNote(earlier.op->getLoc())
          << "conflicting access is here";
      return diagnostic;
    }
  return success();
}

// Records the offloaded memory of layouts that a function for a GPU has
// written. The update brings pieces of it to the device ahead of its kernels
// (CudaOffload). These copies wait for nothing of the same function, so a piece
// would miss what was written.
class WrittenPieces {
public:
  explicit WrittenPieces(const SymbolTable &symbols) : symbols(symbols) {}

  // Refuses an op that brings what an earlier one has written.
  LogicalResult add(Operation *op, ArrayRef<MemoryAccess> accesses) {
    if (!op->hasTrait<rt::ThroughPieces>())
      return success();
    SmallVector<MemoryAccess> offloaded = llvm::to_vector(
        llvm::make_filter_range(accesses, [&](const MemoryAccess &access) {
          return isOffloaded(access);
        }));
    if (rt::streamOf(op) == rt::Stream::compute)
      for (const MemoryAccess &access : offloaded)
        for (const auto &[before, writer] : written)
          if (conflict(before, access)) {
            auto diagnostic = op->emitOpError("brings ")
                              << access.describe()
                              << ", which is offloaded, before what this "
                                 "function has written "
                                 "of it is back";
            diagnostic.attachNote(writer->getLoc()) << "it is written here";
            return diagnostic;
          }
    for (const MemoryAccess &access : offloaded)
      if (access.write)
        written.push_back({access, op});
    return success();
  }

private:
  bool isOffloaded(const MemoryAccess &access) const {
    auto layout =
        access.symbol
            ? symbols.lookup<fsdp::LayoutOp>(access.symbol.getLeafReference())
            : fsdp::LayoutOp();
    auto is = [&](SideEffects::Resource *memory) {
      return fsdp::isSame(access.memory, memory);
    };
    StringRef what = is(fsdp::GradientMemory::get())    ? "gradient"
                     : is(fsdp::OptimizerMemory::get()) ? "state"
                     : is(fsdp::ParameterMemory::get()) ? "parameter"
                                                        : "";
    return layout && fsdp::isOffloaded(layout, what);
  }

  const SymbolTable &symbols;
  SmallVector<std::pair<MemoryAccess, Operation *>> written;
};

// The streams meet at the end of each function (the host synchronizes, a CUDA
// section joins), so each is a proof of its own.
LogicalResult verifyFunction(func::FuncOp function, const Bounds &bounds) {
  StreamClocks clocks(function);
  WrittenPieces pieces(bounds.symbols);
  // The commands of each queue; only those of different queues can race, and
  // all but compute's hold few.
  std::array<SmallVector<Command>, StreamClocks::kQueues> commands;
  for (Operation &op : function.getBody().front()) {
    FailureOr<SmallVector<MemoryAccess>> accesses =
        accessesOf(&op, bounds.symbols, bounds.padding);
    if (failed(accesses))
      return failure();
    // Events and waits advance the clocks too, and have no accesses.
    if (!clocks.advance(&op))
      return op.emitOpError("waits for event ")
             << cast<rt::EventWaitOp>(op).getEvent()
             << ", which has not been recorded before";
    std::optional<int> queue = clocks.queueOf(&op);
    if (accesses->empty())
      continue;
    if (!queue)
      return op.emitOpError("accesses ") << accesses->front().describe()
                                         << ", but does not run on a stream";
    // The clock already counts this command, so its own component is the
    // command's position.
    if (bounds.onGpu && failed(pieces.add(&op, *accesses)))
      return failure();
    const StreamClocks::Clock &clock = clocks.clock(*queue);
    Command command{&op, *queue, clock[*queue], clock, std::move(*accesses)};
    if (failed(verifyBounds(command, bounds)))
      return failure();
    for (int other = 0; other < StreamClocks::kQueues; ++other)
      if (other != *queue)
        for (const Command &earlier : unordered(commands[other], command))
          if (failed(verifyApart(earlier, command)))
            return failure();
    commands[*queue].push_back(std::move(command));
  }
  return success();
}

struct VerifyRT : fsdpc::passes::impl::VerifyRTBase<VerifyRT> {
  void runOnOperation() override {
    auto arena = getOperation()->getAttrOfType<DictionaryAttr>("fsdp.arena");
    auto bytes = arena ? arena.getAs<IntegerAttr>("bytes") : IntegerAttr();
    if (!bytes) {
      getOperation().emitError("missing attribute 'fsdp.arena' with entry "
                               "'bytes'; run plan-memory first");
      return signalPassFailure();
    }
    SymbolTable symbols(getOperation());
    auto options = fsdp::CompileOptions::of(getOperation());
    Bounds bounds{bytes.getInt(), options.gatherPadding(), symbols,
                  options.isCuda()};
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function->hasAttr("nn.kernel") &&
          failed(verifyFunction(function, bounds)))
        return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
