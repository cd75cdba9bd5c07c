// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See child.h. fork and not posix_spawn, which cannot ask for the signal that a
// child gets when its parent dies. Between fork and exec only functions that
// are safe there are called: all memory is allocated before.
#include "tools/run/child.h"

#include "runtime/support/programs.h"
#include "runtime/support/system_error.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace fsdpc::run {
namespace {

// What the child does before the program. Returns only on failure.
void become(const char *program, char **words, char **environment, int input,
            bool quiet, pid_t parent) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent)
    return;
  // The parent blocks what it waits for.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  int nothing = open("/dev/null", O_RDWR);
  dup2(input >= 0 ? input : nothing, STDIN_FILENO);
  if (quiet) {
    dup2(nothing, STDOUT_FILENO);
    dup2(nothing, STDERR_FILENO);
  }
  close(nothing);
  execve(program, words, environment);
}

} // namespace

Child::Child(Child &&other) noexcept
    : process(std::exchange(other.process, -1)),
      input(std::exchange(other.input, -1)) {}

Child &Child::operator=(Child &&other) noexcept {
  std::swap(process, other.process);
  std::swap(input, other.input);
  return *this;
}

Child::~Child() {
  if (isRunning()) {
    signalGroup(SIGKILL);
    while (waitpid(process, nullptr, 0) < 0 && errno == EINTR)
      ;
  }
  end();
}

void Child::end() {
  process = -1;
  if (input >= 0)
    close(std::exchange(input, -1));
}

Result<Child> Child::start(std::vector<std::string> words,
                           ChildOptions options) {
  Result<std::string> program = findProgram(words[0]);
  FSDPC_TRY(program);
  std::vector<std::string> environment = environmentForPrograms();
  std::vector<char *> argv = pointersTo(words), envp = pointersTo(environment);
  int ends[2] = {-1, -1};
  if (options.piped && pipe2(ends, O_CLOEXEC) != 0)
    return systemError(errno, "cannot make a pipe");
  pid_t parent = getpid();
  Child child;
  child.process = fork();
  if (child.process == 0) {
    become(program->c_str(), argv.data(), envp.data(), ends[0], options.quiet,
           parent);
    _exit(127);
  }
  int code = errno;
  if (ends[0] >= 0)
    close(ends[0]);
  child.input = ends[1];
  if (child.process < 0)
    return systemError(code, "cannot start '" + *program + "'");
  // Both sides do it, so that it holds whoever comes first.
  setpgid(child.process, child.process);
  return child;
}

std::optional<int> Child::poll() {
  int status = 0;
  if (!isRunning() || waitpid(process, &status, WNOHANG) != process)
    return std::nullopt;
  end();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Child::signal(int number) const {
  if (isRunning())
    kill(process, number);
}

void Child::signalGroup(int number) const {
  if (isRunning())
    kill(-process, number);
}

void Child::tell(const std::string &text) const {
  // A reader that is gone is noticed by its end, and SIGPIPE is ignored.
  [[maybe_unused]] ssize_t written = write(input, text.data(), text.size());
}

std::vector<std::string> agentWords(const std::string &agent) {
  std::vector<std::string> words;
  std::istringstream text(agent);
  for (std::string word; text >> word;)
    words.push_back(word);
  std::string name = words.empty() ? "" : words[0];
  if (name.substr(name.rfind('/') + 1) == "ssh")
    for (const char *option :
         {"BatchMode=yes", "ConnectTimeout=8", "ServerAliveInterval=4",
          "ServerAliveCountMax=3"})
      words.insert(words.end(), {"-o", option});
  return words;
}

} // namespace fsdpc::run
