// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The durations of ops and collectives on a machine, and the attributes that
// tell them to the reader of a dump. Costs of ops are in the IR; what moves
// between ranks follows from the bytes of a CollectiveOps.
#include "compiler/analysis/CommunicationVolume.h"
#include "compiler/dialects/fsdp/RunningStatistics.h"
#include "compiler/dialects/nn/ElementBytes.h"
#include "compiler/schedule/cost_model.h"
#include "compiler/schedule/rounding.h"
#include "passes/schedule/ScheduleIR.h"
#include "passes/schedule/ScheduledOps.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::passes;
using namespace fsdpc::analysis;

namespace {

// Returns the duration of an op on the compute stream, in µs.
double durationOf(Operation *op, const schedule::Machine &machine) {
  // Written by the cost pass for the machine of the options, so it does not
  // change with the number of ranks.
  if (auto cost = op->getAttrOfType<FloatAttr>(fsdp::FSDPDialect::kCostAttr))
    return cost.getValueAsDouble();
  // These stop the compute stream until the values of all ranks have arrived.
  if (auto update = dyn_cast<fsdp::UpdateStatisticsOp>(op))
    return fsdp::modeOf(update) == fsdp::BufferMode::Local
               ? 0
               : schedule::allGatherUs(machine,
                                       machine.ranks * 4 *
                                           elementsOf(update.getStatistic()));
  if (auto reduce = dyn_cast<fsdp::AllReduceOp>(op))
    return schedule::allGatherUs(machine, machine.ranks * 8 *
                                              elementsOf(reduce.getInput()));
  // Ops without a cost (views, marks, packs) take no time.
  return 0;
}

// A gather first writes the rank's own part, from f32 masters of 4 bytes: it
// narrows them, and a single rank also copies what is not narrowed. On a GPU
// this is a kernel on the stream of gathers. Host links were measured with this
// copy included; a single rank has no link, so it is added.
double castUs(const schedule::Machine &machine, const CollectiveOps &ops) {
  int64_t own = ops.castElements / machine.ranks +
                ops.castGroupElements / schedule::groupRanks(machine);
  if (own == 0 ||
      (machine.ranks > 1 && (ops.elementBytes == 4 || !machine.isGpu)))
    return 0;
  return schedule::copyUs(machine, double(own) * double(4 + ops.elementBytes));
}

// A single rank copies its gradients to its sums, of f32.
double sumUs(const schedule::Machine &machine, const CollectiveOps &ops) {
  if (machine.ranks > 1 || ops.summedElements == 0)
    return 0;
  return schedule::copyUs(machine, double(ops.summedElements) *
                                       double(ops.elementBytes + 4));
}

// A gather in blocks converts the rank's masters, and then what all ranks have
// sent; a reduction the rank's gradients, and then all ranks' of its part. Both
// do so on the collective's stream.
double blocksUs(const schedule::Machine &machine, const CollectiveOps &ops) {
  if (ops.blockElements == 0)
    return 0;
  int64_t own = ops.blockElements / machine.ranks;
  bool gathers = !ops.results.empty();
  int64_t bytes = own * 4 + ops.blockElements * ops.elementBytes +
                  ops.blockedBytes +
                  ops.blockedBytes / (gathers ? machine.ranks : 1);
  return schedule::copyUs(machine, double(bytes));
}

// An offload writes the rank's own values, and a fetch reads them.
double fileUs(const schedule::Machine &machine, const CollectiveOps &ops) {
  double bytes = double(ops.fileBytes);
  return ops.results.empty() ? schedule::offloadUs(machine, 0, bytes)
                             : schedule::offloadUs(machine, bytes, 0);
}

// A gather reads the rank's parameters. A reduction reads the rank's sums if it
// continues them, and writes them.
double storedUs(const schedule::Machine &machine, const CollectiveOps &ops) {
  double bytes = double(ops.storedBytes) / machine.ranks +
                 double(ops.storedGroupBytes) / schedule::groupRanks(machine);
  bool isRead = !ops.results.empty() || ops.continuesSums;
  return schedule::offloadUs(machine, isRead ? bytes : 0,
                             ops.results.empty() ? bytes : 0);
}

double gatherUs(const schedule::Machine &machine, const CollectiveOps &ops) {
  // As plannedGroup of the memory plan: all ranks where the group does not
  // divide them.
  if (ops.secondaryRanks > 0 && machine.ranks % ops.secondaryRanks == 0) {
    schedule::Machine group = machine;
    group.ranks = int(ops.secondaryRanks);
    return schedule::allGatherUs(group, ops.wholeBytes);
  }
  double us = blocksUs(machine, ops) + storedUs(machine, ops);
  if (ops.blockElements == 0)
    us += castUs(machine, ops);
  if (ops.groupBytes)
    us += schedule::groupGatherUs(machine, ops.groupBytes);
  if (ops.wholeBytes)
    us += schedule::allGatherUs(machine, ops.wholeBytes);
  return us;
}

// A compressed reduction adds the gradients to f32 residuals, reads these three
// times, in histograms or in products with factors, and takes from them what is
// sent, on the collective's stream. Only the products take time for arithmetic.
double compressedUs(const schedule::Machine &machine,
                    const CollectiveOps &ops) {
  if (ops.compressedElements == 0)
    return 0;
  int64_t bytes = ops.compressedElements *
                  (ops.elementBytes + (2 + 3 + 2) * int64_t(sizeof(float)));
  double us = schedule::copyUs(machine, double(bytes));
  if (ops.compressionFlops > 0)
    us += schedule::opUs(machine, "matmul", ops.compressionFlops, 0,
                         ElementType::f32);
  if (ops.toEachBytes)
    us += schedule::allGatherUs(machine, machine.ranks * ops.toEachBytes);
  if (ops.summedBytes)
    us += schedule::reduceScatterUs(machine, ops.summedBytes) +
          schedule::allGatherUs(machine, ops.summedBytes);
  return us;
}

double reduceUs(const schedule::Machine &machine, const CollectiveOps &ops) {
  double us = blocksUs(machine, ops) + compressedUs(machine, ops) +
              storedUs(machine, ops) + sumUs(machine, ops);
  if (ops.groupBytes)
    us += schedule::groupReduceUs(machine, ops.groupBytes, ops.sumBytes);
  if (ops.wholeBytes == 0)
    return us;
  // NCCL cannot add blocks, so the ranks trade them and add them themselves.
  auto timeOf =
      ops.blockElements ? schedule::allToAllUs : schedule::reduceScatterUs;
  return us + timeOf(machine, ops.wholeBytes);
}

} // namespace

void fsdpc::passes::setDurations(ScheduleIR &ir,
                                 const schedule::Machine &machine) {
  bool copiesFiles = llvm::any_of(ir.collectives, [](const CollectiveOps &ops) {
    return ops.fileBytes + ops.storedBytes + ops.storedGroupBytes > 0;
  });
  bool oneChannel = schedule::takeTurns(machine, copiesFiles);
  for (auto [op, timed] : llvm::zip(ir.ops, ir.problem.ops))
    timed.durationUs = durationOf(op, machine);
  for (auto [ops, c] :
       llvm::zip_equal(ir.collectives, ir.problem.collectives)) {
    bool gathers = c.kind == schedule::CollectiveKind::Gather;
    c.durationUs = ops.fileBytes ? fileUs(machine, ops)
                   : gathers     ? gatherUs(machine, ops)
                                 : reduceUs(machine, ops);
    c.channel = gathers || oneChannel ? gatherChannel : reduceChannel;
  }
  ir.problem.contention = schedule::contentionOf(machine, copiesFiles);
}

FloatAttr fsdpc::passes::timeAttr(Builder &builder, double us) {
  return builder.getF64FloatAttr(schedule::roundedUs(us));
}

void fsdpc::passes::annotate(const ScheduleIR &ir,
                             const schedule::Timeline &timeline) {
  for (auto [id, ops] : llvm::enumerate(ir.collectives)) {
    Builder builder(ops.first->getContext());
    auto set = [&](Operation *op, StringRef name, Attribute value) {
      op->setAttr(name, value);
    };
    int64_t bytes = 0;
    // A gather moves its results, a reduction its operands.
    ValueRange moved = ops.results;
    if (moved.empty())
      moved = ops.first->getOperands();
    for (Value value : moved)
      bytes += nn::tensorBytes(value.getType());
    if (ops.blockElements > 0)
      bytes = ops.wholeBytes + ops.groupBytes;
    if (ops.compressedElements > 0)
      bytes = ops.wholeBytes + ops.toEachBytes + ops.summedBytes;
    set(ops.first, fsdp::FSDPDialect::kBytesAttr,
        builder.getI64IntegerAttr(bytes));
    set(ops.first, fsdp::FSDPDialect::kCostAttr,
        timeAttr(builder, ir.problem.collectives[id].durationUs));
    set(ops.wait, fsdp::FSDPDialect::kExposedAttr,
        timeAttr(builder, timeline.exposedUs[id]));
  }
  auto module = ir.ops.back()->getParentOfType<ModuleOp>();
  writeCommunication(module, communicatedBytes(module));
}
