// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finding the update of a statistic, which may stand behind a factor, and
// reading its mode.
#include "compiler/dialects/fsdp/RunningStatistics.h"

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/options/OptionTypes.h"

using namespace mlir;

namespace fsdpc::fsdp {

// Each value once, since sums may share values again and again.
UpdateStatisticsOp updateOf(Value statistic) {
  llvm::SetVector<Value> values;
  values.insert(statistic);
  for (size_t i = 0; i < values.size(); ++i)
    for (Operation *user : values[i].getUsers()) {
      if (auto update = dyn_cast<UpdateStatisticsOp>(user))
        return update;
      if (isa<nn::MulOp, nn::AddOp>(user))
        values.insert(user->getResult(0));
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
