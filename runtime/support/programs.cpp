// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Looks programs up and starts them, as programs.h says. posix_spawn and execve
// search no folders themselves, and what they start gets an environment in
// which a search finds nothing in the working folder either.
#include "runtime/support/programs.h"
#include "runtime/support/system_error.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <spawn.h>
#include <string_view>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

extern char **environ;

namespace fsdpc {
namespace {

// The lists of folders in which programs that are started here look for code:
// programs, Python modules, GCC's parts, libraries to link, and the folders
// that the linker writes into a program that has none. LD_LIBRARY_PATH is not
// among them, since it holds for this process as well.
constexpr std::string_view lists[] = {"PATH", "PYTHONPATH", "COMPILER_PATH",
                                      "LIBRARY_PATH", "LD_RUN_PATH"};

using Folders = std::vector<std::string>;

Folders absoluteFolders(std::string_view list) {
  Folders folders;
  for (size_t begin = 0; begin <= list.size();) {
    size_t end = std::min(list.find(':', begin), list.size());
    std::string_view folder = list.substr(begin, end - begin);
    if (folder.starts_with('/'))
      folders.emplace_back(folder);
    begin = end + 1;
  }
  return folders;
}

std::string joined(const Folders &folders) {
  std::string list;
  for (const std::string &folder : folders)
    list.append(list.empty() ? "" : ":").append(folder);
  return list;
}

// An empty PATH would mean the working folder.
Folders searchPath() {
  const char *path = std::getenv("PATH");
  Folders folders = absoluteFolders(path ? path : "");
  return folders.empty() ? Folders{"/usr/bin", "/bin"} : folders;
}

bool isExecutable(const std::string &path) {
  struct stat state;
  return stat(path.c_str(), &state) == 0 && S_ISREG(state.st_mode) &&
         access(path.c_str(), X_OK) == 0;
}

Error cannotRun(const std::string &program, int code) {
  return systemError(code, "cannot run '" + program + "'");
}

} // namespace

Result<std::string> findProgram(const std::string &name) {
  if (name.find('/') != std::string::npos) {
    if (isExecutable(name))
      return name;
    return inputError("cannot run '" + name +
                      "': it is not an executable file");
  }
  for (const std::string &folder : searchPath())
    if (std::string path = folder + "/" + name; isExecutable(path))
      return path;
  return inputError("cannot run '" + name +
                    "': no such program in the absolute folders of PATH");
}

// Without /proc the kernel's note of the path that was started helps.
std::string ownProgram() {
  std::error_code error;
  auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error)
    return path.string();
  const auto *started = reinterpret_cast<const char *>(getauxval(AT_EXECFN));
  path = std::filesystem::canonical(started ? started : "", error);
  return error ? "" : path.string();
}

std::vector<std::string> environmentForPrograms() {
  std::vector<std::string> variables;
  for (char **at = environ; *at; ++at) {
    std::string_view variable = *at;
    size_t end = std::min(variable.find('='), variable.size());
    std::string_view name = variable.substr(0, end);
    if (name == "PATH")
      continue;
    if (std::ranges::find(lists, name) == std::end(lists)) {
      variables.emplace_back(variable);
      continue;
    }
    variable.remove_prefix(std::min(end + 1, variable.size()));
    std::string folders = joined(absoluteFolders(variable));
    if (!folders.empty())
      variables.push_back(std::string(name) + "=" + folders);
  }
  variables.push_back("PATH=" + joined(searchPath()));
  return variables;
}

// Within single quotes, the shell takes every character but one as it is.
std::string shellQuoted(const std::string &word) {
  std::string text = "'";
  for (char c : word)
    text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::vector<char *> pointersTo(std::vector<std::string> &texts) {
  std::vector<char *> pointers;
  for (std::string &text : texts)
    pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

Result<int> runAndWait(std::vector<std::string> words, int input) {
  Result<std::string> program = findProgram(words[0]);
  FSDPC_TRY(program);
  std::vector<std::string> environment = environmentForPrograms();
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, input, STDIN_FILENO);
  pid_t child = 0;
  int code =
      posix_spawn(&child, program->c_str(), &files, nullptr,
                  pointersTo(words).data(), pointersTo(environment).data());
  posix_spawn_file_actions_destroy(&files);
  if (code != 0)
    return cannotRun(*program, code);
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      return systemError(errno, "cannot wait for '" + *program + "'");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Error replaceProcess(std::vector<std::string> words) {
  Result<std::string> program = findProgram(words[0]);
  FSDPC_TRY(program);
  std::vector<std::string> environment = environmentForPrograms();
  execve(program->c_str(), pointersTo(words).data(),
         pointersTo(environment).data());
  return cannotRun(*program, errno);
}

} // namespace fsdpc
