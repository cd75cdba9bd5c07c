// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See launch.h. mpirun is preferred on one host as well: it binds ranks to
// cores, without which two threads may share one (docs/guide/launchers.md has
// the figures).
#include "tools/run/launch.h"

#include "runtime/comm/wire.h"
#include "runtime/support/exit_code.h"
#include "runtime/support/programs.h"
#include "tools/run/notes.h"
#include "tools/run/remote_script.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <unistd.h>

extern char **environ;

namespace fsdpc::run {
namespace {

// mpirun has waited for ever for a host that was gone, and for ranks that were
// killed while they started.
constexpr double goneLimit = 15;
// After one host of a job has failed, the others get so long to end.
constexpr double failureLimit = 20;
// The code of a host or launcher that was lost without one of the program's.
constexpr int linkFailed = int(ExitCode::machineFailed);
// The code of a remote shell without a connection.
constexpr int shellFailed = 255;

double now() {
  return std::chrono::duration<double>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::vector<std::string> mpirunWords(const Arguments &arguments,
                                     const std::vector<Host> &hosts,
                                     int64_t ranks) {
  std::vector<std::string> words = {"mpirun", "-np", std::to_string(ranks),
                                    "--oversubscribe"};
  auto parameter = [&](const char *name, const std::string &value) {
    words.insert(words.end(), {"--mca", name, value});
  };
  if (geteuid() == 0)
    words.push_back("--allow-run-as-root");
  // Once a rank has ended with a code, mpirun waits all of this time before it
  // ends itself. `stop` asks ranks to save in a way that starts no such wait.
  parameter("odls_base_sigkill_timeout", "3");
  if (hosts.empty())
    return words;
  words.insert(words.end(), {"--host", listOf(hosts)});
  // Without these limits mpirun waits for ever for a host that is gone.
  parameter("oob_tcp_keepalive_time", "5");
  parameter("oob_tcp_keepalive_intvl", "2");
  parameter("oob_tcp_keepalive_probes", "3");
  // The program tells its own process the same; mpirun and its daemons connect
  // earlier.
  if (std::string interface = valueOf(arguments.program, "--interface");
      !interface.empty()) {
    parameter("oob_tcp_if_include", interface);
    parameter("btl_tcp_if_include", interface);
  }
  if (arguments.agent != "ssh")
    parameter("plm_rsh_agent", arguments.agent);
  // mpirun hands on only what it is told to.
  for (char **at = environ; *at; ++at) {
    std::string variable = *at;
    if (variable.starts_with("FSDPC_"))
      words.insert(words.end(), {"-x", variable.substr(0, variable.find('='))});
  }
  return words;
}

// A random port outside of those that Linux gives to connections.
int randomPort() {
  runtime::Bytes32 bytes = runtime::randomBytes();
  return 20000 + (bytes[0] * 256 + bytes[1]) % 12000;
}

// What mpirun has started on this host and still runs: ranks, and a remote
// shell for each other host.
struct Parts {
  int64_t ranks = 0, shells = 0;
};

void count(const std::filesystem::path &process, pid_t parent, Parts &parts) {
  std::ifstream stat(process / "stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  // PID (NAME) STATE PARENT; the name may have any character.
  size_t name = text.rfind(')');
  if (name == std::string::npos || name + 4 > text.size() ||
      text[name + 2] == 'Z' || std::atoi(&text[name + 4]) != parent)
    return;
  std::ifstream environment(process / "environ");
  for (std::string variable; std::getline(environment, variable, '\0');)
    if (variable.starts_with("OMPI_COMM_WORLD_RANK=")) {
      ++parts.ranks;
      return;
    }
  ++parts.shells;
}

Parts partsOf(pid_t mpirun) {
  Parts parts;
  std::error_code error;
  for (const auto &each : std::filesystem::directory_iterator("/proc", error))
    if (isdigit(static_cast<unsigned char>(
            each.path().filename().string().front())))
      count(each.path(), mpirun, parts);
  return parts;
}

} // namespace

std::string chooseLauncher(const Arguments &arguments) {
  if (arguments.launcher != "auto")
    return arguments.launcher;
  if (findProgram("mpirun"))
    return "mpirun";
  return arguments.hosts.empty() ? "threads" : "ssh";
}

Result<Launch> Launch::start(const std::string &launcher,
                             const Arguments &arguments,
                             const std::vector<Host> &hosts, int64_t ranks,
                             std::vector<std::string> program) {
  Launch launch;
  launch.launcher = launcher;
  auto begin = [&](std::vector<std::string> words, bool piped) -> Status {
    Result<Child> child = Child::start(std::move(words), {.piped = piped});
    FSDPC_TRY(child);
    launch.children.push_back(std::move(*child));
    return {};
  };
  if (launcher == "ssh") {
    std::string secret = runtime::hexOf(runtime::randomBytes());
    if (const char *given = getenv("FSDPC_SECRET"); given && *given)
      secret = given;
    RemoteJob job{.hosts = hosts,
                  .ranks = ranks,
                  .port = randomPort(),
                  .program = std::move(program)};
    for (size_t i = 0; i < hosts.size(); ++i) {
      std::vector<std::string> words;
      // What runs here needs no shell on another host.
      if (isThisHost(hosts[i])) {
        words = {"/bin/sh", "-c"};
      } else {
        words = agentWords(arguments.agent);
        words.push_back(hosts[i].name);
      }
      words.push_back(remoteScript(job, i));
      FSDPC_TRY(begin(std::move(words), true));
      // Not on a command line, which every user of the host can read.
      launch.children.back().tell(secret + "\n");
    }
    return launch;
  }
  std::vector<std::string> words;
  if (launcher == "mpirun" && (ranks > 1 || !hosts.empty()))
    words = mpirunWords(arguments, hosts, ranks);
  else if (ranks > 1)
    program.insert(program.begin() + 1, {"--ranks", std::to_string(ranks)});
  launch.byMpirun = !words.empty();
  launch.otherHosts = std::ranges::count_if(
      hosts, [](const Host &host) { return !isThisHost(host); });
  words.insert(words.end(), program.begin(), program.end());
  FSDPC_TRY(begin(std::move(words), false));
  return launch;
}

// Ranks end together, and a remote shell ends with its host's ranks, or when it
// has lost the host. For many hosts mpirun has fewer shells of its own; then
// only the ranks of this host tell.
bool Launch::partsAreGone() {
  if (!byMpirun || killed)
    return false;
  Parts parts = partsOf(children.front().id());
  ranksSeen |= parts.ranks > 0;
  shellsSeen |= otherHosts > 0 && parts.shells >= otherHosts;
  bool gone = (ranksSeen && parts.ranks == 0) ||
              (shellsSeen && parts.shells < otherHosts);
  if (!gone)
    goneSince = 0;
  else if (goneSince == 0)
    goneSince = now();
  return goneSince > 0 && now() - goneSince > goneLimit;
}

// The first host whose ranks have failed decides on the job's code.
void Launch::pollRemote() {
  for (Child &child : children) {
    std::optional<int> ended = child.poll();
    if (!ended || *ended == 0 || code > 0)
      continue;
    // Also shellFailed.
    code = *ended > 128 ? linkFailed : *ended;
    failedAt = now();
  }
  if (failedAt > 0 && !killed && now() - failedAt > failureLimit)
    kill();
}

std::optional<int> Launch::poll() {
  if (launcher == "ssh") {
    pollRemote();
    bool running = std::any_of(children.begin(), children.end(),
                               [](Child &each) { return each.isRunning(); });
    return running ? std::nullopt : std::optional<int>(std::max(code, 0));
  }
  Child &child = children.front();
  if (std::optional<int> ended = child.poll()) {
    // mpirun returns the code of a remote shell that lost its host.
    bool lost = byMpirun && otherHosts > 0 && *ended == shellFailed;
    return code > 0 ? code : lost ? linkFailed : *ended;
  }
  if (partsAreGone()) {
    note("ranks or hosts of the job are gone and mpirun waits on; ending it");
    code = linkFailed;
    kill();
  }
  return std::nullopt;
}

void Launch::stop() {
  if (launcher == "ssh")
    for (Child &child : children)
      child.tell("TERM\n");
  else
    // mpirun hands SIGUSR1 on, which asks for the same; on SIGTERM it would end
    // with a code of its own.
    children.front().signal(launcher == "mpirun" ? SIGUSR1 : SIGTERM);
}

void Launch::kill() {
  killed = true;
  for (Child &child : children) {
    if (launcher == "ssh")
      child.tell("KILL\n");
    child.signalGroup(SIGKILL);
  }
}

} // namespace fsdpc::run
