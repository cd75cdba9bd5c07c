// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A piece that has more time to travel than its copies take costs nothing, so
// pieces are ordered by the time that ops leave between the two ends, less that
// of the copies. The fewest pieces in this order are searched for that keep the
// limit. More of them may be faster, since prefetching uses the memory that
// they leave, so some larger numbers are tried as well. All of them need not
// take the least memory: an op of the backward may overwrite a value that has
// stayed, but not one that is fetched. So a piece that is back soon may take
// more than it frees.
#include "passes/schedule/OffloadChoice.h"

#include "compiler/dialects/nn/ElementBytes.h"
#include "passes/schedule/SolveSchedule.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Offloads.h"
#include "compiler/options/Options.h"
#include "compiler/schedule/table.h"

#include "llvm/ADT/SetVector.h"

#include <cmath>
#include <limits>
#include <map>

using namespace mlir;

namespace fsdpc::passes {

namespace {

SmallVector<fsdp::OffloadOp> offloadsOf(ModuleOp module) {
  FailureOr<func::FuncOp> function = fsdp::getMicrobatch(module);
  if (failed(function))
    return {};
  return llvm::to_vector(function->front().getOps<fsdp::OffloadOp>());
}

int64_t bytesOf(fsdp::OffloadOp offload) {
  int64_t bytes = 0;
  for (Value value : offload.getValues())
    bytes += nn::tensorBytes(value.getType());
  return bytes;
}

// The backward reads the values themselves again.
void keep(fsdp::OffloadOp offload) {
  for (Operation *fetch :
       llvm::make_early_inc_range(offload.getHeld().getUsers())) {
    for (Value fetched : fetch->getResults())
      for (Operation *user : llvm::make_early_inc_range(fetched.getUsers()))
        if (isa<fsdp::FreeOp>(user))
          user->erase();
    fetch->replaceAllUsesWith(offload.getValues());
    fetch->erase();
  }
  offload.erase();
}

// Returns the numbers of the module's offloads, that with the most time to
// spare first.
FailureOr<SmallVector<size_t>> bySpareTime(ModuleOp module) {
  FailureOr<MicrobatchProblem> read = readProblem(module);
  if (failed(read))
    return failure();
  const schedule::Problem &problem = read->ir.problem;
  std::vector<double> reachUs = {0};
  for (const schedule::Op &op : problem.ops)
    reachUs.push_back(reachUs.back() + op.durationUs);
  DenseMap<Operation *, double> spareUs;
  for (auto [ops, c] :
       llvm::zip_equal(read->ir.collectives, problem.collectives)) {
    // The offload and its fetch add up to the time between the two.
    if (isa<fsdp::OffloadOp>(ops.first))
      spareUs[ops.first] -= reachUs[c.earliest] + c.durationUs;
    else if (auto fetch = dyn_cast<fsdp::FetchOp>(ops.first))
      spareUs[fetch.getHeld().getDefiningOp()] +=
          reachUs[c.latest] - c.durationUs;
  }
  SmallVector<fsdp::OffloadOp> offloads = offloadsOf(module);
  auto order = llvm::to_vector(llvm::seq<size_t>(0, offloads.size()));
  llvm::stable_sort(order, [&](size_t a, size_t b) {
    return spareUs[offloads[a]] > spareUs[offloads[b]];
  });
  return order;
}

class Choice {
public:
  Choice(ModuleOp module, SmallVector<size_t> order)
      : module(module), order(std::move(order)) {}

  // Returns the number of pieces to offload, from the order's begin on.
  size_t run();

private:
  ScheduleEstimate *estimate(size_t count);
  bool fits(size_t count);
  size_t least();

  ModuleOp module;
  SmallVector<size_t> order;
  std::map<size_t, std::unique_ptr<ScheduleEstimate>> tried;
};

// Returns the schedule with the first `count` pieces offloaded, or null if
// there is none.
ScheduleEstimate *Choice::estimate(size_t count) {
  auto [known, isNew] = tried.try_emplace(count);
  if (!isNew)
    return known->second.get();
  // An error that does not depend on the choice appears again later.
  ScopedDiagnosticHandler silent(module.getContext(),
                                 [](Diagnostic &) { return success(); });
  OwningOpRef<ModuleOp> copy = module.clone();
  SmallVector<fsdp::OffloadOp> offloads = offloadsOf(*copy);
  for (size_t kept : ArrayRef(order).drop_front(count))
    keep(offloads[kept]);
  if (auto found = ScheduleEstimate::of(*copy); succeeded(found))
    known->second = std::move(*found);
  return known->second.get();
}

bool Choice::fits(size_t count) {
  ScheduleEstimate *found = estimate(count);
  return found && !std::isinf(found->hopedUs()) && found->packed().fits;
}

// Returns a number of pieces that keeps the limit, or that of the least peak,
// in the case that all pieces exceed it. Those that may take more than they
// free come last in the order. Which numbers are asked does not depend on the
// limit, so that the peak in the error is one that is kept.
size_t Choice::least() {
  size_t all = order.size(), least = all;
  int64_t peak = std::numeric_limits<int64_t>::max();
  SmallVector<size_t> numbers = {all};
  for (size_t kept = 1; kept < all; kept *= 2)
    numbers.push_back(all - kept);
  numbers.push_back(0);
  for (size_t count : numbers) {
    ScheduleEstimate *found = estimate(count);
    if (!found)
      continue;
    ScheduleEstimate::Found packed = found->packedHard();
    if (packed.fits)
      return count;
    if (packed.peakBytes > 0 && packed.peakBytes < peak) {
      peak = packed.peakBytes;
      least = count;
    }
  }
  return least;
}

size_t Choice::run() {
  size_t exceeds = 0, fitting = order.size();
  if (fits(exceeds))
    return exceeds;
  if (!fits(fitting))
    fitting = least();
  if (!fits(fitting))
    return fitting;
  while (fitting - exceeds > 1) {
    size_t middle = exceeds + (fitting - exceeds) / 2;
    (fits(middle) ? fitting : exceeds) = middle;
  }
  // A gain of less is not worth the copies.
  constexpr double tolerance = 0.001;
  size_t best = fitting, stride = (order.size() - fitting) / 4 + 1;
  for (size_t count = fitting + stride; count <= order.size();
       count += stride) {
    double mostUs = (1 - tolerance) * estimate(best)->packed().microbatchUs;
    ScheduleEstimate *found = estimate(count);
    if (!found || found->hopedUs() >= mostUs)
      continue;
    std::optional<ScheduleEstimate::Found> packed = found->packedWithin(mostUs);
    if (packed && packed->fits && packed->microbatchUs < mostUs)
      best = count;
  }
  return best;
}

// A table without a limit has rows for all pieces, and leaves no choice.
// Another table was written under a limit, and the choice is the same again.
FailureOr<bool> isChosenByTable(ModuleOp module) {
  fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
  if (options.schedule.name.empty())
    return false;
  FailureOr<MicrobatchProblem> read = readProblem(module);
  if (failed(read))
    return failure();
  return bool(schedule::readTable(read->ir.problem, options.schedule.text));
}

} // namespace

FailureOr<Offloadable> chooseOffloaded(ModuleOp module) {
  SmallVector<fsdp::OffloadOp> offloads = offloadsOf(module);
  Offloadable all;
  for (fsdp::OffloadOp offload : offloads) {
    ++all.pieces;
    all.bytes += bytesOf(offload);
  }
  if (offloads.empty() ||
      fsdp::CompileOptions::of(module).memoryLimit.bytes == 0)
    return all;
  FailureOr<bool> chosen = isChosenByTable(module);
  if (failed(chosen))
    return failure();
  if (*chosen)
    return all;
  FailureOr<SmallVector<size_t>> order = bySpareTime(module);
  if (failed(order))
    return failure();
  size_t count = Choice(module, *order).run();
  for (size_t kept : ArrayRef(*order).drop_front(count))
    keep(offloads[kept]);
  return all;
}

void annotateOffloaded(const ScheduleIR &ir, const schedule::Timeline &timeline,
                       const Offloadable &all) {
  if (all.pieces == 0)
    return;
  auto module = ir.ops.back()->getParentOfType<ModuleOp>();
  Builder builder(module.getContext());
  int64_t pieces = 0, bytes = 0;
  double copyUs = 0, exposedUs = 0;
  llvm::SetVector<Attribute> units;
  for (auto [id, ops] : llvm::enumerate(ir.collectives)) {
    if (ops.fileBytes == 0)
      continue;
    copyUs += ir.problem.collectives[id].durationUs;
    exposedUs += timeline.exposedUs[id];
    if (!isa<fsdp::OffloadStartOp>(ops.first))
      continue;
    ++pieces;
    bytes += ops.fileBytes;
    if (auto unit = ops.first->getAttrOfType<FlatSymbolRefAttr>(
            fsdp::FSDPDialect::kUnitAttr))
      units.insert(unit);
  }
  auto count = [&](StringRef name, int64_t value) {
    return builder.getNamedAttr(name, builder.getI64IntegerAttr(value));
  };
  auto time = [&](StringRef name, double us) {
    return builder.getNamedAttr(name, timeAttr(builder, us));
  };
  module->setAttr(
      fsdp::kOffloadedAttr,
      builder.getDictionaryAttr(
          {count("pieces", pieces), count("of_pieces", all.pieces),
           count("bytes", bytes), count("of_bytes", all.bytes),
           time("copy_us", copyUs), time("exposed_us", exposedUs),
           builder.getNamedAttr("units",
                                builder.getArrayAttr(units.getArrayRef()))}));
}

} // namespace fsdpc::passes
