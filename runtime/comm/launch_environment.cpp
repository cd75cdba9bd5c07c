// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the variables that launchers set. A program that a launcher started as
// one of several ranks, but that joins no others, would run as another copy of
// rank 0. So the caller joins or refuses, and names the variables that it
// found.
#include "runtime/comm/launch_environment.h"

#include "runtime/support/concat.h"

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>

namespace fsdpc::runtime {

namespace {

constexpr int64_t most = 1 << 30; // ranks, and seconds to wait

bool isSet(const char *variable) {
  const char *text = getenv(variable);
  return text && *text;
}

// Reads numbers from variables. Keeps the first error, so that the code that
// weighs launchers against each other need not return at each variable.
class Numbers {
public:
  // Returns the number in a variable, or -1 if it is unset or not a number of
  // [least, greatest].
  int64_t read(const char *variable, int64_t least, int64_t greatest) {
    if (!isSet(variable))
      return -1;
    const std::string text = getenv(variable);
    errno = 0;
    int64_t value = strtoll(text.c_str(), nullptr, 10);
    if (text.find_first_not_of("0123456789") == std::string::npos &&
        errno == 0 && value >= least && value <= greatest)
      return value;
    fail(concat(std::string(variable), "='", text,
                "' is not a whole number from ", least, " to ", greatest,
                "; correct it, or unset it"));
    return -1;
  }
  int rank(const char *variable) { return int(read(variable, 0, most)); }
  int ranks(const char *variable) { return int(read(variable, 1, most)); }
  int port(const char *variable) { return int(read(variable, 1, 65535)); }
  // Slurm numbers its own steps, such as a batch script, from 2^32 downwards.
  // They count as unset.
  int slurmId(const char *variable) {
    int64_t value = read(variable, 0, INT64_MAX);
    return value < most ? int(value) : -1;
  }

  void fail(const std::string &message) {
    if (status)
      status = inputError(message);
  }

  Status status;
};

// Returns the first variable that is set to some text, or an empty string.
std::string firstText(std::initializer_list<const char *> variables) {
  for (const char *variable : variables)
    if (const char *text = getenv(variable); text && *text)
      return text;
  return "";
}

// Variables by which one kind of launcher announces ranks.
struct Announcement {
  const char *launcher;
  const char *needs; // a variable that must be set, or null
  const char *size;  // the variable with the number of ranks, or null
  const char *rank;  // the variable with the rank
  bool mpi;
};

// In order of trust. A torchrun that mpirun or srun has started comes first,
// since it knows the final ranks; then an mpirun inside a batch job, then the
// batch job. A size without a rank (salloc's shell) says nothing about this
// process.
const Announcement announcements[] = {
    {"torchrun", "TORCHELASTIC_RUN_ID", "WORLD_SIZE", "RANK", false},
    {"mpirun", nullptr, "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", true},
    {"mpirun", nullptr, "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK", true},
    {"mpirun", nullptr, "PMI_SIZE", "PMI_RANK", true},
    {"mpirun", nullptr, nullptr, "PMIX_RANK", true},
    {"torchrun", nullptr, "WORLD_SIZE", "RANK", false},
    {"srun", nullptr, "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", false},
    {"srun", nullptr, "SLURM_NTASKS", "SLURM_PROCID", false},
};

// A launcher numbers the ranks of a machine in the order of their ranks, so the
// number on the machine is at most the rank.
void checkPlace(const LaunchEnvironment &environment, const char *rankOnHost,
                const char *ranksOnHost, Numbers &numbers) {
  auto fail = [&](const char *variable, int value, const std::string &limit) {
    numbers.fail(concat(std::string(variable), "=", value, " does not match ",
                        limit, "; correct it, or unset it on every rank"));
  };
  int local = environment.rankOnHost, all = environment.ranksOnHost;
  if (local >= 0 && all > 0 && local >= all)
    return fail(
        rankOnHost, local,
        concat(std::string(ranksOnHost), "=", all, ": ranks count from 0"));
  if (all > environment.ranks)
    return fail(ranksOnHost, all, environment.variables);
  if (local > environment.rank)
    return fail(rankOnHost, local, environment.variables);
}

// A short secret could be guessed from one exchange of messages.
void readSecret(LaunchEnvironment &environment, Numbers &numbers) {
  constexpr size_t least = 16;
  environment.secret = firstText({"FSDPC_SECRET"});
  size_t length = environment.secret.size();
  if (length && length < least)
    numbers.fail(concat(
        "FSDPC_SECRET has ", length, " characters and needs at least ", least,
        "; set it to the same random text on every rank, for example "
        "with export FSDPC_SECRET=$(openssl rand -hex 32)"));
}

// torchrun's agent keeps a store of its own on MASTER_PORT, so the program
// takes the next port. FSDPC_PORT overrides both.
void findTorchrun(LaunchEnvironment &environment, Numbers &numbers) {
  environment.rankOnHost = numbers.rank("LOCAL_RANK");
  environment.ranksOnHost = numbers.ranks("LOCAL_WORLD_SIZE");
  checkPlace(environment, "LOCAL_RANK", "LOCAL_WORLD_SIZE", numbers);
  environment.address = firstText({"MASTER_ADDR"});
  if (environment.port < 0) {
    // 65535 has no next port, hence the limit of 65535 - next.
    bool next = firstText({"TORCHELASTIC_USE_AGENT_STORE"}) == "True";
    environment.port = int(numbers.read("MASTER_PORT", 1, 65535 - next));
    if (environment.port > 0)
      environment.port += next;
  }
  environment.job = firstText({"TORCHELASTIC_RUN_ID"}) + "." +
                    firstText({"TORCHELASTIC_RESTART_COUNT"});
  if (environment.address.empty())
    environment.missing = "MASTER_ADDR is not set";
  else if (environment.port <= 0)
    environment.missing = "MASTER_PORT is not set";
}

// Hydra, or Slurm's plugin pmi2. Open MPI's own launchers have variables of
// their own, and PMIx another protocol. With Slurm's own variables the ranks
// need no protocol.
void findPmi(LaunchEnvironment &environment, Numbers &numbers) {
  if (!environment.mpi || !isSet("PMI_FD") || !isSet("PMI_RANK") ||
      isSet("OMPI_COMM_WORLD_RANK") || isSet("PMIX_RANK"))
    return;
  environment.pmi = numbers.rank("PMI_FD");
  if (environment.launcher != "mpirun")
    return;
  environment.launcher = "mpiexec";
  environment.rankOnHost = numbers.rank("MPI_LOCALRANKID");
  environment.ranksOnHost = numbers.ranks("MPI_LOCALNRANKS");
  checkPlace(environment, "MPI_LOCALRANKID", "MPI_LOCALNRANKS", numbers);
}

// Rank 0 runs on the first node of the step. The port is derived from the job's
// number, which all ranks know and other jobs do not have.
void findSrun(LaunchEnvironment &environment, Numbers &numbers) {
  environment.rankOnHost = numbers.rank("SLURM_LOCALID");
  checkPlace(environment, "SLURM_LOCALID", nullptr, numbers);
  environment.address = firstText({"MASTER_ADDR"});
  if (environment.address.empty())
    environment.address =
        firstHost(firstText({"SLURM_STEP_NODELIST", "SLURM_NODELIST"}));
  if (environment.address.empty())
    environment.address = firstText({"SLURM_LAUNCH_NODE_IPADDR"});
  int job =
      numbers.slurmId(isSet("SLURM_JOB_ID") ? "SLURM_JOB_ID" : "SLURM_JOBID");
  int step = numbers.slurmId(isSet("SLURM_STEP_ID") ? "SLURM_STEP_ID"
                                                    : "SLURM_STEPID");
  if (environment.port < 0)
    environment.port = numbers.port("MASTER_PORT");
  if (environment.port < 0 && job >= 0 && step >= 0)
    // 16 steps of a job, and neighbouring jobs, get different ports.
    environment.port = 20000 + int((int64_t(job) * 16 + step) % 10000);
  environment.job = concat(job, ".", step);
  // A batch script looks like one task of many, but nobody starts the others.
  if (step < 0 && !isSet("SLURM_STEP_NUM_TASKS"))
    environment.missing = "SLURM_STEP_ID is not set";
  else if (environment.address.empty())
    environment.missing = "neither SLURM_STEP_NODELIST nor MASTER_ADDR is set";
  else if (environment.port <= 0)
    environment.missing = "neither SLURM_JOB_ID nor MASTER_PORT is set";
}

} // namespace

// "node[003-007,9],login" gives "node003": the text before the bracket, and the
// first number inside it.
std::string firstHost(const std::string &list) {
  std::string host;
  for (size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    size_t end = list.find_first_of(",-]", at + 1);
    host += list.substr(at + 1, end - at - 1);
    at = list.find(']', at);
    if (at == std::string::npos)
      break;
  }
  return host;
}

// Launchers nest (srun starts torchrun starts ranks), so several may announce
// ranks. The first in order of trust counts, unless it announces only one rank
// and a later one announces more.
static void findRanks(LaunchEnvironment &environment, Numbers &numbers) {
  for (const Announcement &a : announcements) {
    if (!isSet(a.rank) || (a.size && !isSet(a.size)) ||
        (a.needs && !getenv(a.needs)))
      continue;
    int rank = numbers.rank(a.rank);
    // PMIX_RANK comes without a size: rank + 1 is the least that it can be. MPI
    // itself says how many there are.
    int ranks = a.size ? numbers.ranks(a.size) : rank + 1;
    if (rank < 0 || ranks < 1)
      return;
    if (rank >= ranks)
      return numbers.fail(concat(
          std::string(a.rank), "=", rank, " does not match ", a.size, "=",
          ranks, ": ranks count from 0; correct them, or unset both"));
    environment.mpi |= a.mpi;
    if (environment.launcher == "none" ||
        (environment.ranks == 1 && ranks > 1)) {
      environment.launcher = a.launcher;
      environment.ranks = ranks;
      environment.rank = rank;
    }
    // MPI does not know of ranks that a torchrun inside an mpirun starts.
    if (a.needs && ranks > 1)
      break;
  }
  // Slurm has its own PMI, so these ranks can be joined by MPI or by TCP.
  if (environment.launcher == "mpirun" && !getenv("OMPI_COMM_WORLD_RANK") &&
      numbers.rank("SLURM_PROCID") == environment.rank) {
    int tasks =
        numbers.ranks(isSet("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS"
                                                    : "SLURM_NTASKS");
    if (tasks > 1) {
      environment.launcher = "srun";
      environment.ranks = tasks;
    }
  }
}

// Lists the variables that announced the ranks, for messages. Two announcements
// may share a variable (RANK); each is listed once.
static void nameVariables(LaunchEnvironment &environment) {
  for (const Announcement &a : announcements) {
    if (a.launcher != environment.launcher || environment.ranks == 1)
      continue;
    for (const char *variable : {a.size, a.rank})
      if (variable && getenv(variable) &&
          environment.variables.find(std::string(variable) + "=") ==
              std::string::npos)
        environment.variables += (environment.variables.empty() ? "" : ", ") +
                                 std::string(variable) + "=" + getenv(variable);
  }
}

Result<LaunchEnvironment> readLaunchEnvironment() {
  LaunchEnvironment environment;
  Numbers numbers;
  // Errors collect in `numbers` and are returned at the end, so the order of
  // the reads decides which one is reported.
  findRanks(environment, numbers);
  nameVariables(environment);
  if (int64_t seconds = numbers.read("FSDPC_JOIN_SECONDS", 1, most);
      seconds > 0)
    environment.seconds = double(seconds);
  environment.interface = firstText({"FSDPC_INTERFACE"});
  environment.port = numbers.port("FSDPC_PORT");
  findPmi(environment, numbers);
  if (environment.launcher == "torchrun")
    findTorchrun(environment, numbers);
  else if (environment.launcher == "srun")
    findSrun(environment, numbers);
  else if (environment.pmi < 0)
    environment.missing = "no launcher environment was found";
  if (environment.launcher == "torchrun" || environment.launcher == "srun" ||
      environment.pmi >= 0)
    readSecret(environment, numbers);
  FSDPC_TRY(numbers.status);
  return environment;
}

} // namespace fsdpc::runtime
