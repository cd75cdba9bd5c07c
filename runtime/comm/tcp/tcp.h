// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ranks as processes that know only where rank 0 is, for programs that torchrun
// or srun started. They meet at rank 0, which also watches over them, and then
// connect to each other: data goes straight from rank to rank. GPU jobs send
// only small messages this way, since NCCL carries the rest.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/comm/launch_environment.h"

namespace fsdpc::runtime {

/// Meets the other ranks at the environment's address and port. Rank 0 listens;
/// the others try until it answers. Connections from outside the job (without
/// its secret, of another job, of a rank that is connected already) are closed
/// and change nothing. The error has no message if another rank prints it.
///
/// Afterwards a rank that disconnects, or that is silent for `silence` seconds
/// (0: no limit), ends the job with one line that names it. A connection breaks
/// after the same time without an answer, so a machine that is gone is noticed,
/// and a network that pauses for less is waited for.
Result<std::unique_ptr<Job>> joinTcp(const LaunchEnvironment &environment,
                                     int ranksPerNode, double silence);

} // namespace fsdpc::runtime
