// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Version 1 of the process management interface: lines of text over a
// descriptor that the launcher hands to each rank (PMI_FD). Hydra, the mpiexec
// of MPICH and Intel MPI, speaks it. The launcher keeps values that ranks put,
// and all ranks can get them after a barrier. It is all that a TCP job needs to
// meet, so such a launcher starts one without its MPI.
#pragma once

#include "runtime/comm/launch_environment.h"
#include "runtime/support/status.h"

namespace fsdpc::runtime {

/// Returns true if the MPI that the runtime was built with speaks it too, which
/// then is the better transport within a machine.
bool mpiSpeaksPmi();

/// Sets address, port and secret of `environment`, whose `pmi` is a descriptor.
/// Rank 0 chooses them, unless variables do, and all ranks learn them from the
/// launcher. Waits for all ranks, at most `environment.seconds`.
Status meetByPmi(LaunchEnvironment &environment);

} // namespace fsdpc::runtime
