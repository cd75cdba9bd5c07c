// What a launcher's environment variables announce. A
// program that finds several ranks announced and joined none of them would run
// as so many copies of rank 0: the caller refuses, naming the variables.
#include "runtime/comm/communicator.h"

#include <cstdlib>

namespace fsdpc {

namespace {

// The number in a variable; -1 where it is unset or no number.
int number(const char *variable) {
  const char *text = getenv(variable);
  if (!text || !*text)
    return -1;
  char *end;
  long value = strtol(text, &end, 10);
  return *end == 0 && value >= 0 && value < 1 << 30 ? int(value) : -1;
}

struct Announcement {
  const char *launcher;
  const char *size; // variable with the number of ranks, or null
  const char *rank; // variable with the rank, or null
  bool mpi;
};

// In order of trust: an mpirun within a batch job counts, not the batch job.
// A size without a rank (salloc's shell) says nothing about this process.
const Announcement announcements[] = {
    {"mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", true},
    {"mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", true},
    {"mpirun", "PMI_SIZE", "PMI_RANK", true},
    {"mpirun", nullptr, "PMIX_RANK", true},
    {"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", false},
    {"srun", "SLURM_NTASKS", "SLURM_PROCID", false},
    {"torchrun", "WORLD_SIZE", "RANK", false},
};

} // namespace

LaunchEnvironment readLaunchEnvironment() {
  LaunchEnvironment environment;
  environment.launcher = "none";
  for (const Announcement &a : announcements) {
    int rank = number(a.rank);
    int ranks = a.size ? number(a.size) : rank + 1;
    if (rank < 0 || ranks < 1)
      continue;
    environment.mpi |= a.mpi;
    if (environment.launcher == "none" ||
        (environment.ranks == 1 && ranks > 1)) {
      environment.launcher = a.launcher;
      environment.ranks = ranks;
    }
    if (ranks == 1)
      continue;
    for (const char *variable : {a.size, a.rank}) {
      if (!variable)
        continue;
      if (!environment.variables.empty())
        environment.variables += ", ";
      environment.variables += std::string(variable) + "=" + getenv(variable);
    }
  }
  return environment;
}

} // namespace fsdpc
