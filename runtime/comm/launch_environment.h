// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the environment variables of launchers (Open MPI, MPICH, torchrun and
// Slurm). They say whether this process is one of several ranks, which one, and
// where the ranks meet.
#pragma once

#include "runtime/support/status.h"

#include <string>

namespace fsdpc::runtime {

struct LaunchEnvironment {
  int rank = 0, ranks = 1;
  std::string launcher = "none"; ///< "mpirun", "mpiexec", "torchrun", "srun"
  std::string variables;         ///< for messages: "OMPI_COMM_WORLD_SIZE=2"
  bool mpi = false;              ///< joinMpi should find the other ranks

  double seconds = 300;  ///< to wait for the others (FSDPC_JOIN_SECONDS)
  std::string interface; ///< towards the others (FSDPC_INTERFACE); empty: any

  // ---- only for joinTcp ----
  int pmi = -1; ///< a descriptor for meetByPmi; -1: none
  int rankOnHost = -1, ranksOnHost = -1; ///< -1: unknown
  std::string address;                   ///< of rank 0's machine
  int port = 0;                          ///< on which rank 0 listens
  std::string missing; ///< what the variables lack; empty: nothing
  std::string job;     ///< distinguishes jobs on one machine
  std::string secret;  ///< of the job (FSDPC_SECRET); empty: rank 0 makes one
};

/// Reads the variables of this process. A process without any is rank 0 of 1.
/// Fails if a variable that counts is not the number that it should be: the
/// process would otherwise train alone, as a copy of rank 0.
Result<LaunchEnvironment> readLaunchEnvironment();

/// Returns the first host of a Slurm list: "node003" of
/// "node[003-007,9],login".
std::string firstHost(const std::string &list);

} // namespace fsdpc::runtime
