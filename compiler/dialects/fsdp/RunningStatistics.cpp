// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finding the update of a statistic, which may stand behind a factor, and
// reading its mode.
#include "compiler/dialects/fsdp/RunningStatistics.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/options/OptionTypes.h"

using namespace mlir;

namespace fsdpc::fsdp {

UpdateStatisticsOp updateOf(Value statistic) {
  for (Operation *user : statistic.getUsers()) {
    if (auto update = dyn_cast<UpdateStatisticsOp>(user))
      return update;
    if (isa<nn::MulOp, nn::AddOp>(user))
      if (UpdateStatisticsOp update = updateOf(user->getResult(0)))
        return update;
  }
  return {};
}

BufferMode modeOf(UpdateStatisticsOp update) {
  BufferMode mode = BufferMode::Sequential;
  if (std::optional<StringRef> name = update.getMode())
    parseName(*name, mode);
  return mode;
}

} // namespace fsdpc::fsdp
