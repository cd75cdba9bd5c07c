// GPUs as the cost model sees them.
#ifndef FSDPC_COMPILER_SCHEDULE_GPU_MACHINE_H
#define FSDPC_COMPILER_SCHEDULE_GPU_MACHINE_H

#include "compiler/schedule/cost_model.h"

#include <string_view>

namespace fsdpc::schedule {

/// A rank on one GPU of the architecture ("sm_90"), at the peak rates of its
/// data sheet; of several products with one architecture, the one that is made
/// for training. One that is not known is like sm_90.
Machine gpuMachine(std::string_view arch);

} // namespace fsdpc::schedule

#endif // FSDPC_COMPILER_SCHEDULE_GPU_MACHINE_H
