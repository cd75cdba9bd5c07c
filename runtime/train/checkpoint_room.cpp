// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes before the first step what checkpoints take. Too little disk space
// is a warning, since others may free some in time. The copy also takes memory,
// which a limit on memory may forbid.
#include "runtime/train/checkpoint_room.h"
#include "runtime/core/device.h"
#include "runtime/core/failure.h"
#include "runtime/support/concat.h"
#include "runtime/support/reserved_file.h"
#include "runtime/support/spelling.h"
#include "runtime/train/trainer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

namespace fsdpc::runtime {
namespace {

// The checkpoints that a run writes: one per multiple of `every`, and the last.
int64_t writtenBy(const CheckpointPlan &plan) {
  // Without a period in steps, as with the clock, at least the last.
  if (plan.every == 0)
    return 1;
  // The steps in (first, last] that are multiples of `every`, and the last step
  // if it is none of them.
  return plan.last / plan.every - plan.first / plan.every +
         (plan.last % plan.every != 0);
}

// Returns how many of the first `count` checkpoints of a run --keep-every
// keeps. None of them is the last, so each is at a multiple of `every`.
int64_t keptForever(const CheckpointPlan &plan, int64_t count) {
  if (plan.keepEvery == 0 || plan.every == 0 || count <= 0)
    return 0;
  // lcm may overflow; then no step of this run is a multiple of both.
  int64_t part = plan.keepEvery / std::gcd(plan.every, plan.keepEvery);
  if (part > std::numeric_limits<int64_t>::max() / plan.every)
    return 0;
  int64_t both = part * plan.every;
  int64_t end = (plan.first / plan.every + count) * plan.every;
  return end / both - plan.first / both;
}

} // namespace

int64_t checkpointsToAdd(const CheckpointPlan &plan,
                         const std::vector<int64_t> &steps) {
  if (plan.last <= plan.first)
    return 0;
  // Without --keep nothing is removed.
  int64_t written = writtenBy(plan);
  if (plan.keep == 0)
    return written;
  // Those that are there and make room in time.
  int64_t removable =
      std::count_if(steps.begin(), steps.end(), [&plan](int64_t step) {
        return plan.keepEvery == 0 || step % plan.keepEvery != 0;
      });
  // The number of the run's own checkpoints that fit beside the old ones before
  // the first is removed.
  int64_t window = plan.keep - removable; // may be negative
  if (plan.byTime)
    return std::max<int64_t>(1, window + 1);
  // While the last one is written: `keep` before it, and what stays for ever
  // of those before these.
  int64_t older = keptForever(plan, written - 1 - plan.keep);
  return std::max<int64_t>(1, std::min(written, window + 1 + older));
}

// Warns before the first step if the disk has no room for the checkpoints that
// this run adds to the folder.
void Trainer::warnOfSmallDisk() const {
  auto found = folder.steps();
  int64_t room = freeBytes(options.checkpoint);
  // Unknown room is not small room.
  if (job.rank != 0 || !found || room < 0)
    return;
  CheckpointPlan plan;
  plan.first = started.step;
  plan.last = options.steps;
  plan.every = options.checkpointSteps;
  plan.byTime = options.checkpointMinutes > 0;
  plan.keep = options.keep;
  plan.keepEvery = options.keepEvery;
  int64_t count = checkpointsToAdd(plan, *found);
  int64_t each = checkpointBytes(describeCheckpoint(
      manifest, job.size, info.groupRanks, options.checkpointTrained));
  // The product may overflow; the quotient cannot.
  if (each == 0 || count <= room / each)
    return;
  printWarning(concat("'", options.checkpoint, "' has room for ",
                      bytesText(room), ", and up to ", count, " more ",
                      count == 1 ? "checkpoint takes " : "checkpoints take ",
                      bytesText(each), " each; make room, or lower --keep"));
}

// Plans the copy of a checkpoint, unless --memory-limit has no room for it: the
// steps then wait for the disk. They do so with --offload, too: a copy
// would take the memory that offloading saves. On a GPU the limit is not one of
// host memory.
void Trainer::planCheckpoints() {
  if (!options.writesAlongTheWay() || info.plan.offloaded > 0)
    return;
  info.plan.checkpoint = checkpointCopyBytes(describeCheckpoint(
      manifest, job.size, info.groupRanks, options.checkpointTrained));
  // checkMemory holds an error if the plan exceeds the limit.
  if (std::string(backendName()) != "host" ||
      checkMemory(info.plan, manifest.memoryLimit))
    return;
  if (job.rank == 0)
    printWarning("steps wait for checkpoints: a copy of " +
                 bytesText(info.plan.checkpoint) +
                 " does not fit in the --memory-limit of " +
                 bytesText(manifest.memoryLimit));
  info.plan.checkpoint = 0;
}

} // namespace fsdpc::runtime
