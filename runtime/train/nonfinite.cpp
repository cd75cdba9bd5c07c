// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Handles a step whose loss or gradient is not finite: the job ends, or a
// dynamic loss scale or --on-nonfinite leaves the step out.
//
// Such a step changes neither parameters nor optimizer state: the update does
// not run, or its optimizers do nothing. The forward has already changed the
// running statistics, so they are restored. Only the residuals of compressed
// reductions begin at zero again. --on-nonfinite=rollback goes back to a
// checkpoint and continues with the samples after the step, as PaLM's training
// did at spikes of the loss (Chowdhery et al., 2022).
//
// Losses and sums of gradients are the same on every rank, so all ranks decide
// the same.
#include "runtime/abi/memory_plan.h"
#include "runtime/core/failure.h"
#include "runtime/support/concat.h"
#include "runtime/support/spelling.h"
#include "runtime/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace fsdpc::runtime {
namespace {

// Residuals of the gradients of such a step would make all later steps
// non-finite, too. All ranks begin again together, since the states of
// compressions must be equal on all. A device that runs ahead has done so
// before it began the next step.
void forgetResiduals(fsdpc_rank &rank) {
  if (rank.device->runsAhead())
    return;
  for (size_t i = 0; i < rank.layouts.size(); ++i) {
    const LayoutBuffers &buffers = rank.layouts[i];
    LayoutMemory memory = layoutMemory(rank.manifest, rank.manifest.layouts[i],
                                       rank.job.size, rank.groupRanks);
    if (buffers.residual)
      rank.device->zero(buffers.residual, size_t(memory.residual));
    if (buffers.compression)
      rank.device->zero(buffers.compression, size_t(memory.compression));
  }
}

} // namespace

// Takes note of a step that was skipped because of its gradients. Every rank
// comes to the same conclusion, so they may stop together.
void Trainer::judge(StepRecord &record) {
  record.scaled = scaler.isOn();
  bool finite = results.nonFinite < 0;
  scaler.update(finite && (!rank->leavesOut || std::isfinite(record.loss)));
  record.counts = scaler.isOn() || toleratesNonFinite();
  record.skipped = scaler.skipped();
  if (!scaler.isDynamic())
    return;
  if (finite && !std::isfinite(record.loss))
    stopAtLoss(record.step, record.loss);
  if (!finite && double(scaler.scale()) < leastLossScale)
    stopAtNonFinite(
        *rank, record.step,
        concat("the loss scale fell below 1e-06, since the gradients of ",
               record.skipped, " steps were not finite"),
        manifest.layouts[size_t(results.nonFinite)].unit);
}

// Returns the first unit whose gradient is not finite on any rank, or "". All
// ranks call it together.
std::string Trainer::unitOfNonFinite() const {
  int64_t own = firstNonFinite(*rank);
  std::vector<int64_t> all(size_t(job.size));
  job.channel[controlChannel]->allGather(&own, all.data(), sizeof own);
  size_t first = size_t(*std::min_element(all.begin(), all.end()));
  return first < manifest.layouts.size() ? manifest.layouts[first].unit : "";
}

// Ends the job at a loss that is not finite.
void Trainer::stopAtLoss(int64_t step, double loss) {
  stopAtNonFinite(*rank, step, concat("the loss is ", loss), unitOfNonFinite());
}

// Allocates in the first step only. A device that runs ahead keeps them itself.
void Trainer::keepBuffers() {
  if (!rank->leavesOut || rank->device->runsAhead())
    return;
  size_t bytes = 0;
  for (const Buffer &buffer : manifest.buffers)
    bytes += changingBytes(buffer);
  buffersBefore.resize(bytes);
  char *to = buffersBefore.data();
  for (size_t i = 0; i < manifest.buffers.size(); ++i) {
    size_t size = changingBytes(manifest.buffers[i]);
    rank->device->download(to, rank->buffers[i], size);
    to += size;
  }
}

// Puts the buffers back that keepBuffers has kept.
void Trainer::restoreBuffers() {
  if (rank->device->runsAhead())
    return;
  const char *from = buffersBefore.data();
  for (size_t i = 0; i < manifest.buffers.size(); ++i) {
    size_t size = changingBytes(manifest.buffers[i]);
    rank->device->upload(rank->buffers[i], from, size);
    from += size;
  }
}

// Called after each step. Puts the buffers back if it was not finite, says so,
// and goes back to a checkpoint if that is asked for.
Status Trainer::leaveOut(StepRecord &record) {
  wentBack = false;
  bool finite = std::isfinite(record.loss);
  // The gradients of a dynamic loss scale overflow as a matter of course.
  if (!rank->leavesOut || (finite && results.nonFinite < 0))
    return {};
  std::string what = finite ? "the gradient is not finite"
                            : concat("the loss is ", record.loss);
  // A device that runs ahead has judged the gradients too, and may have
  // overwritten them since.
  std::string unit;
  if (results.nonFinite >= 0)
    unit = manifest.layouts[size_t(results.nonFinite)].unit;
  else if (!rank->device->runsAhead())
    unit = unitOfNonFinite();
  // Does not return: the job ends with the message.
  if (leftOut == options.onNonFinite.times)
    stopAtNonFinite(*rank, record.step,
                    concat(what, ", and --on-nonfinite has left out ", leftOut,
                           " steps before"),
                    unit);
  ++leftOut;
  ++counted; // the step's microbatches are not
  forgetResiduals(*rank);
  restoreBuffers();
  if (job.rank == 0)
    printWarning(concat("step ", record.step, ": ", what, "; ",
                        causeOfNonFinite(*rank, record.step, unit),
                        "; the step is left out (", leftOut, " of at most ",
                        options.onNonFinite.times, ")"));
  return options.onNonFinite.kind == NonFinitePolicy::rollback
             ? rollBack(record.step)
             : Status();
}

// Sets everything to the newest checkpoint, but for the position in the data,
// which is that after `step`. A step that has been enqueued after it counts as
// not run. All ranks call it together.
Status Trainer::rollBack(int64_t step) {
  rank->device->synchronize();
  pending = false;
  // Taken before `started` changes, from which it counts.
  int64_t sample = numberOf(step + 1, 0, 0);
  // The newest checkpoint may still be on its way to the disk.
  finishCheckpoint();
  awaitHook();
  resumed.reset();
  if (Status found = findCheckpoint("newest"); !found)
    failAgreed(job, found.error());
  if (!resumed)
    failJob(job,
            runError(concat("--on-nonfinite=rollback: '", options.checkpoint,
                            "' has no checkpoint yet to go back to; step ",
                            step, " is not finite")));
  Status loaded = loadFrom(*resumed, /*keepsBase=*/true);
  resumed.reset();
  state.sample = started.sample = sample;
  // As after a start: slot 0 is read first, and no error of a prefetched step
  // counts.
  rank->slot = 0;
  nextRead = {};
  if (loaded)
    loaded = readStep(started.step);
  if (Status agreed = agree(job, loaded); !agreed)
    failAgreed(job, agreed.error());
  exchangeWeights();
  // Replicated copies still hold the values of the step that went wrong.
  FSDPC_TRY(rank->device->gatherWholes(*rank));
  if (job.rank == 0) {
    if (Status cut = log.goBack(started.step); !cut)
      printWarning(cut.error().message + "; the log keeps the steps that the "
                                         "run has gone back from");
    if (Status begun = events.begin(started.step); !begun)
      printWarning(begun.error().message + "; the run has no further events");
    std::fprintf(stderr, "going back to '%s'\n",
                 folder.folderOf(started.step).c_str());
  }
  // Its time and what it has sent belong to no step.
  StepRecord unused;
  countSent(unused);
  finished = std::chrono::steady_clock::now();
  wentBack = true;
  return {};
}

} // namespace fsdpc::runtime
