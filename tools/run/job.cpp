// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See job.h. Signals are taken by sigtimedwait, which is also what the loop
// sleeps in. So there are no handlers, and no signal is lost between a check
// and a wait.
#include "tools/run/job.h"

#include "runtime/checkpoint/checkpoint_folder.h"
#include "runtime/support/concat.h"
#include "runtime/support/exit_code.h"
#include "tools/run/launch.h"
#include "tools/run/notes.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>

namespace fsdpc::run {
namespace {

using Clock = std::chrono::steady_clock;

// The signals that end a job; a batch system sends SIGUSR1 before its limit.
constexpr int stops[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};

// Blocks the signals, which from now on are taken by `next`. One that this
// process was started to ignore stays ignored, as under nohup.
class Signals {
public:
  Signals() {
    sigemptyset(&set);
    for (int number : stops)
      sigaddset(&set, number);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    // A child's pipe may have lost its reader.
    std::signal(SIGPIPE, SIG_IGN);
  }
  // Waits up to `milliseconds`. Returns a signal that ends the job, or 0.
  int next(int milliseconds) const {
    timespec limit = {milliseconds / 1000, milliseconds % 1000 * 1000000L};
    int number = sigtimedwait(&set, nullptr, &limit);
    return std::ranges::find(stops, number) != std::end(stops) ? number : 0;
  }

private:
  sigset_t set;
};

std::string counted(int64_t number, const char *thing) {
  return concat(number, " ", thing, number == 1 ? "" : "s");
}

class Job {
public:
  Job(const Arguments &arguments, const std::string &program)
      : arguments(arguments), program(program),
        launcher(chooseLauncher(arguments)), hosts(arguments.hosts) {}

  Result<int> run();

private:
  Result<int> runOnce(int64_t ranks, bool again);
  bool waitForHosts(int64_t &ranks);
  bool pause(double seconds);
  std::vector<std::string> words(int64_t ranks, bool again) const;

  const Arguments &arguments;
  const std::string &program;
  const std::string launcher;
  std::vector<Host> hosts; // that are left
  Signals signals;
  int stopped = 0; // by this signal
};

// The command line of a start. A later start goes on from the newest
// checkpoint, whichever step the first one was told.
std::vector<std::string> Job::words(int64_t ranks, bool again) const {
  std::vector<std::string> words = arguments.program;
  if (again)
    words = without(words, "--resume");
  words = without(words, "--accumulate");
  words.insert(words.begin(), program);
  if (again)
    words.push_back("--resume");
  if (int64_t each = arguments.microbatches / ranks; each > 1)
    words.insert(words.end(), {"--accumulate", std::to_string(each)});
  return words;
}

Result<int> Job::runOnce(int64_t ranks, bool again) {
  std::vector<Host> placed = place(hosts, ranks);
  Result<Launch> launch =
      Launch::start(launcher, arguments, placed, ranks, words(ranks, again));
  FSDPC_TRY(launch);
  if (!placed.empty() || again)
    note("started " + counted(ranks, "rank") +
         (placed.empty() ? "" : " on " + listOf(placed)) + " by " + launcher);
  for (;;) {
    if (std::optional<int> code = launch->poll())
      return *code;
    int signal = signals.next(200);
    if (signal == 0)
      continue;
    if (stopped == 0) {
      note("asking the ranks to save and end; another signal kills them");
      launch->stop();
    } else if (signal == SIGINT || signal == SIGTERM) {
      launch->kill();
    }
    stopped = signal;
  }
}

// Sleeps. Returns false if a signal ends the job meanwhile.
bool Job::pause(double seconds) {
  auto end = Clock::now() + std::chrono::duration<double>(seconds);
  while (stopped == 0 && Clock::now() < end)
    stopped = signals.next(100);
  return stopped == 0;
}

// Finds the hosts that are left, and the ranks that they can have. Returns
// false if there are too few until the limit, or at a signal.
bool Job::waitForHosts(int64_t &ranks) {
  RankRule rule = {arguments.ranks, arguments.minRanks, arguments.microbatches,
                   arguments.shardGroup};
  if (arguments.hosts.empty())
    return true;
  auto end =
      Clock::now() + std::chrono::duration<double>(arguments.hostSeconds);
  for (bool told = false;; told = true) {
    hosts = answering(arguments.hosts, arguments.agent);
    if (std::optional<int64_t> found = ranksFor(slotsOf(hosts), rule)) {
      ranks = *found;
      return true;
    }
    if (!told)
      note("only " + (hosts.empty() ? "no host" : listOf(hosts)) +
           " of --hosts answers, too few for " +
           counted(arguments.minRanks, "rank") + "; waiting for the others");
    if (Clock::now() > end || !pause(3))
      return false;
  }
}

Result<int> Job::run() {
  int64_t ranks = arguments.ranks;
  int64_t step = newestCheckpoint(arguments.checkpoint);
  for (int64_t restarts = 0, starts = 0;; ++starts) {
    Result<int> code = runOnce(ranks, starts > 0);
    FSDPC_TRY(code);
    if (stopped != 0 || arguments.restarts == 0 || !startsAgain(*code))
      return code;
    if (int64_t newest = newestCheckpoint(arguments.checkpoint);
        newest != step) {
      step = newest;
      restarts = 0;
    }
    std::string ended = concat("the job ended with ", *code);
    if (++restarts > arguments.restarts) {
      note(ended + ", after " + counted(arguments.restarts, "restart") +
           " without a new checkpoint; not started again");
      return code;
    }
    note(concat(ended, "; starting it again from ",
                step < 0 ? "the beginning"
                         : concat("the checkpoint of step ", step),
                " (restart ", restarts, " of ", arguments.restarts, ")"));
    // What fails at once fails less often.
    if (!pause(double(int64_t(1) << std::min<int64_t>(restarts - 1, 5))) ||
        !waitForHosts(ranks))
      return code;
  }
}

} // namespace

bool startsAgain(int code) {
  constexpr int lostHost = 205; // mpirun's own
  return code == int(ExitCode::interrupted) ||
         code == int(ExitCode::machineFailed) || code == 128 + SIGKILL ||
         code == 128 + SIGTERM || code == lostHost;
}

int64_t newestCheckpoint(const std::string &folder) {
  int64_t newest = -1;
  std::error_code error;
  if (folder.empty())
    return newest;
  for (const auto &each : std::filesystem::directory_iterator(folder, error))
    newest =
        std::max(newest, runtime::CheckpointFolder::stepIn(each.path().string())
                             .value_or(newest));
  return newest;
}

Result<int> runJob(const Arguments &arguments, const std::string &program) {
  return Job(arguments, program).run();
}

} // namespace fsdpc::run
