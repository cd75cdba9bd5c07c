// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Starts and awaits the command of --after-checkpoint.
#include "runtime/checkpoint/checkpoint_hook.h"
#include "runtime/support/concat.h"
#include "runtime/support/file.h"
#include "runtime/support/programs.h"
#include "runtime/support/system_error.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace fsdpc::runtime {
namespace {

// Replaces every {}. The search goes on behind the name, which may hold {}
// itself.
std::string withFolder(std::string command, const std::string &folder) {
  std::string name = shellQuoted(folder);
  for (size_t at = 0; (at = command.find("{}", at)) != std::string::npos;
       at += name.size())
    command.replace(at, 2, name);
  return command;
}

} // namespace

// The command gets no signals blocked, whatever its starter blocks, ends by
// SIGPIPE as commands do, which this process ignores, and gets nothing to read.
Status CheckpointHook::start(const std::string &command,
                             const std::string &folder) {
  if (command.empty())
    return {};
  running = withFolder(command, folder);
  std::string shell = "/bin/sh", flag = "-c", text = running;
  char *words[] = {shell.data(), flag.data(), text.data(), nullptr};
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  sigset_t none, pipe;
  sigemptyset(&none);
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY,
                                   0);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &pipe);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t started = 0;
  int code =
      posix_spawn(&started, words[0], &files, &attributes, words, environ);
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (code != 0)
    return systemError(code, "cannot run '" + running + "'");
  child = started;
  return {};
}

Status CheckpointHook::finish() {
  pid_t awaited = std::exchange(child, 0);
  if (awaited == 0)
    return {};
  int status = 0;
  while (waitpid(awaited, &status, 0) < 0)
    if (errno != EINTR)
      return fileError(running, "wait for");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return {};
  return runError("--after-checkpoint '" + running + "' ended with " +
                  (WIFEXITED(status) ? concat("exit code ", WEXITSTATUS(status))
                                     : concat("signal ", WTERMSIG(status))));
}

} // namespace fsdpc::runtime
