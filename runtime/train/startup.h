// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Work before a rank's first step, apart from opening its data: checks that all
// ranks run the same program and that it fits the machine and its memory, and
// loads the initial values.
#pragma once

#include "runtime/checkpoint/training_checkpoint.h"
#include "runtime/core/rank.h"
#include "runtime/data/samples.h"
#include "runtime/data/weights.h"
#include "runtime/support/status.h"

#include <functional>

namespace fsdpc::runtime {

/// Something that must be the same on every rank.
struct Fact {
  std::string name, value;
};

/// Compares the hashes of program and schedule over the ranks. All ranks call
/// it together and get the same answer.
Status comparePrograms(const Manifest &manifest, Job &job);
/// Returns the ranks of a shard group: those of --shard-group, or else those of
/// --reshard-to of the compile, or else those of a node. All ranks call it
/// together; the error is the same on all.
Result<int> chooseGroup(const Manifest &manifest, const Options &options,
                        Job &job);
/// Returns the options and hashes of files that decide what is learnt.
Result<std::vector<Fact>> factsOf(const Manifest &manifest,
                                  const Options &options,
                                  const Samples &samples,
                                  const Weights &weights, int groupRanks);
/// Compares facts over the ranks and names the first that differs. All ranks
/// call it together, with as many facts, and get the same answer.
Status compareFacts(const std::vector<Fact> &facts, Job &job);
/// Checks the number of ranks and the features of this processor.
Status checkMachine(const Manifest &manifest, int ranks);
/// Fails if the program was compiled for steps of fewer microbatches.
Status checkAccumulate(const Manifest &manifest, int64_t accumulate);
/// Checks the plan against a limit in bytes; 0 means none.
Status checkMemory(const MemoryPlan &plan, int64_t limit);

/// The source of values: the model or --init, or a checkpoint.
struct ValueSource {
  /// Reads elements [begin, begin + count) of a parameter as f32.
  std::function<Status(const Member &, int64_t begin, int64_t count, float *to)>
      parameter;
  /// Reads bytes [begin, begin + count) of a member of a layout of bytes.
  std::function<Status(const Member &, int64_t begin, int64_t count, char *to)>
      bytes;
  std::function<Status(const Buffer &, void *to)> buffer;
  /// Returns true for parameters whose values stay as they are.
  std::function<bool(const Member &)> keeps = [](const Member &) {
    return false;
  };
};

/// Reads this rank's shard of every parameter, and every buffer, into device
/// memory.
Status loadShards(fsdpc_rank &rank, const ValueSource &source);
/// Reads this rank's part of every optimizer state from a checkpoint.
Status loadStates(fsdpc_rank &rank, const TrainingCheckpoint &checkpoint);
/// Reads what reductions have not sent of gradients, and the factors that they
/// begin with.
Status loadResiduals(fsdpc_rank &rank, const TrainingCheckpoint &checkpoint);

} // namespace fsdpc::runtime
