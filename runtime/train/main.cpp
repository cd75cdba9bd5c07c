// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fsdpc_main: from a command line to the ranks that run it. It decides how this
// process was started: by mpirun (joinMpi), by torchrun, srun or MPICH's
// mpiexec (joinTcp), alone, or with --ranks (ranks as threads). A process that
// a launcher started as one of several, but that finds no others, refuses to
// run: it would train a copy of rank 0.
#include "runtime/cli/command_line.h"
#include "runtime/comm/interfaces.h"
#include "runtime/comm/mpi/join_deadline.h"
#include "runtime/comm/tcp/pmi.h"
#include "runtime/comm/tcp/tcp.h"
#include "runtime/comm/thread.h"
#include "runtime/core/failure.h"
#include "runtime/support/concat.h"
#include "runtime/support/spelling.h"
#include "runtime/support/system_error.h"
#include "runtime/train/info.h"
#include "runtime/train/trainer.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <malloc.h>
#include <sys/resource.h>
#include <thread>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

// Runs all ranks as threads of this process; rank 0 on the calling thread.
ExitCode runLocal(const Manifest &manifest, const fsdpc_program &program,
                  const Options &options) {
  auto jobs = makeLocalJobs(std::max(1, options.ranks), options.ranksPerNode);
  std::vector<ExitCode> codes(jobs.size());
  std::vector<std::thread> threads;
  for (size_t rank = 1; rank < jobs.size(); ++rank)
    threads.push_back(startThread(concat("rank ", rank), [&, rank] {
      codes[rank] = runRank(manifest, program, options, *jobs[rank]);
    }));
  codes[0] = runRank(manifest, program, options, *jobs[0]);
  for (std::thread &thread : threads)
    thread.join();
  return codes[0]; // all ranks return the same
}

// The error of a process that was announced as one of several ranks but cannot
// join them.
Error strangerError(const LaunchEnvironment &environment) {
  std::string ranks = std::to_string(environment.ranks);
  return inputError("started as one of " + ranks + " ranks by " +
                    environment.launcher + " (" + environment.variables +
                    "), but the program cannot connect to the other ranks: " +
                    environment.missing + "; start it with mpirun -np " +
                    ranks + ", or unset these variables and use --ranks " +
                    ranks);
}

// Returns what --help, --info or --manifest asks for, or "" if the command line
// asks for none of them.
std::string wantedText(const Manifest &manifest, const fsdpc_program &program,
                       const Options &options) {
  if (options.info)
    return printableLines(infoText(manifest, options));
  if (options.manifest)
    return std::string(program.manifest, program.manifest_bytes) + "\n";
  return options.help;
}

// A full disk does not look like success.
Status print(const std::string &text) {
  if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
    return systemError(errno, "cannot write to stdout");
  return {};
}

// Ranks that a launcher announced are not asked for again.
Status checkRanks(const Options &options, const LaunchEnvironment &environment,
                  bool launched) {
  if (!launched || !options.ranks)
    return {};
  return commandLineError(
      "--ranks runs ranks as threads of one process; omit it under " +
      environment.launcher + ", which sets the number of ranks");
}

// Checks the size of shard groups before the ranks meet, as other flags.
Status checkGroup(const Manifest &manifest, const Options &options, int ranks) {
  int64_t group = options.shardGroup ? options.shardGroup : manifest.reshardTo;
  if (!group || ranks % group == 0)
    return {};
  std::string fault = concat(" '", group, "' does not divide the job's ", ranks,
                             ranks == 1 ? " rank" : " ranks");
  if (options.shardGroup)
    return commandLineError("--shard-group" + fault);
  return commandLineError("the compiled --reshard-to" + fault +
                          "; choose other groups by --shard-group");
}

// Prints the error of a rank, if it is the one to speak, and returns the exit
// code.
ExitCode refuse(const Error &error, bool speaks = true) {
  return printError(speaks ? error : error.reworded(""));
}

// Returns for how many seconds a rank may be silent; 0: for ever. A rank that
// lives says so whatever its steps take.
double silenceOf(const Options &options) {
  return options.watchdog >= 0 ? options.watchdog : 300;
}

// Parses, joins the other ranks, and runs. The order matters: mpirun tells a
// process its rank only after joining, and one rank must report even a mistake
// in the command line. So all join first. Other launchers announce the rank in
// the environment.
ExitCode runProgram(int argc, char **argv, const fsdpc_program &program) {
  Result<Manifest> read = fromJson(program.manifest, program.manifest_bytes);
  if (!read)
    return refuse(read.error());
  const Manifest &manifest = *read;
  if (bucketCount(manifest) != program.bucket_count)
    return refuse(inputError(concat(
        "malformed manifest in the program: it has ", bucketCount(manifest),
        " buckets, and the program ", program.bucket_count)));
  Result<Options> parsed = parseCommandLine(argc, argv, manifest);
  const Options options = parsed ? *parsed : Options();

  Result<LaunchEnvironment> launched = readLaunchEnvironment();
  if (!launched)
    return refuse(launched.error());
  if (options.joinTimeout > 0)
    launched->seconds = options.joinTimeout;
  if (!options.interface.empty())
    launched->interface = options.interface;
  launched->mpi &= launched->pmi < 0 || mpiSpeaksPmi();
  const LaunchEnvironment &environment = *launched;
  if (!environment.interface.empty() && environment.ranks > 1) {
    // One rank of a machine speaks, if the launcher numbers them.
    Result<std::vector<Endpoint>> own = addressesOf(environment.interface);
    if (!own)
      return refuse(own.error(), environment.rankOnHost <= 0);
    chooseForLibraries(environment.interface);
  }
  bool meets = environment.ranks > 1 && environment.missing.empty();
  std::unique_ptr<Job> job;
  if (environment.mpi) {
    // MPI must be joined before the command line is judged, because only then
    // the rank is known.
    JoinDeadline deadline(environment.seconds, environment.rank);
    auto joined = joinMpi(options.ranksPerNode, silenceOf(options));
    if (!joined && !meets)
      return refuse(joined.error());
    // A job of one rank: this MPI does not know of the launcher.
    if (joined && !((*joined)->size == 1 && meets))
      job = std::move(*joined);
  }
  bool speaks = job ? job->rank == 0 : environment.rank == 0;
  if (!parsed)
    return refuse(parsed.error(), speaks);
  Status ranks = checkRanks(options, environment, environment.mpi || meets);
  if (!ranks)
    return refuse(ranks.error(), speaks);
  if (std::string text = wantedText(manifest, program, options);
      !text.empty()) {
    Status printed = speaks ? print(text) : Status();
    return printed ? ExitCode::success : refuse(printed.error());
  }
  int count = job     ? job->size
              : meets ? environment.ranks
                      : std::max(1, options.ranks);
  if (Status group = checkGroup(manifest, options, count); !group)
    return refuse(group.error(), speaks);
  if (!job && meets) {
    LaunchEnvironment meeting = environment;
    if (meeting.launcher == "mpiexec")
      if (Status met = meetByPmi(meeting); !met)
        return refuse(met.error(), meeting.rankOnHost <= 0);
    auto joined = joinTcp(meeting, options.ranksPerNode, silenceOf(options));
    if (!joined)
      return refuse(joined.error());
    job = std::move(*joined);
  }
  // Ranks that cannot meet do not know of each other, so each of them speaks.
  if (environment.ranks > 1 && (!job || job->size == 1))
    return refuse(strangerError(environment));
  if (job)
    return runRank(manifest, program, options, *job);
  return runLocal(manifest, program, options);
}

} // namespace

int fsdpc_main(int argc, char **argv, const fsdpc_program *program) {
  outliveReaders();
  // Without AVX-512, oneDNN's products allocate large buffers in each call,
  // which the plan does not hold. Returned at once they cost little; kept in
  // one heap per thread they would exceed the plan. One heap for all threads,
  // and blocks of 128 KiB or more as mappings of their own, which `free` gives
  // back.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  mallopt(M_TRIM_THRESHOLD, 128 << 10);
  // Data may lie in thousands of files, which are open all the time.
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  return guarded([&] { return int(runProgram(argc, argv, *program)); });
}
