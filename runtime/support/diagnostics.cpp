// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/support/diagnostics.h"
#include "runtime/support/spelling.h"
#include "runtime/support/watched_folder.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <new>
#include <sys/uio.h>
#include <unistd.h>

namespace fsdpc::runtime {

// In a single write, so that lines of several ranks do not mix.
static void printLine(const std::string &line) {
  std::string text = printable(line) + "\n";
  if (write(STDERR_FILENO, text.data(), text.size()) < 0)
    return; // no other place to report it
}

ExitCode printError(const Error &error) {
  if (!error.message.empty())
    printLine("error: " + error.message);
  return error.code();
}

void printWarning(const std::string &message) {
  printLine("warning: " + message);
}

// The first thread ends the process; others that fail meanwhile wait.
void endWithoutMemory(const char *reason) {
  static std::atomic_flag isEnding = ATOMIC_FLAG_INIT;
  while (isEnding.test_and_set())
    pause();
  removeWatchedFolders();
  iovec parts[] = {{const_cast<char *>("error: "), 7},
                   {const_cast<char *>(reason), strlen(reason)},
                   {const_cast<char *>("\n"), 1}};
  // There is no other place to report it.
  [[maybe_unused]] ssize_t wrote = writev(STDERR_FILENO, parts, 3);
  _exit(int(ExitCode::runFailed));
}

// What a thread throws ends here, and what is thrown where nothing may be.
[[noreturn]] static void endByException() {
  try {
    if (std::exception_ptr thrown = std::current_exception())
      std::rethrow_exception(thrown);
  } catch (const std::bad_alloc &) {
    endWithoutMemory("out of memory");
  } catch (const std::exception &fault) {
    endWithoutMemory(printable(fault.what()).c_str());
  } catch (...) {
    endWithoutMemory("an exception of a library");
  }
  endWithoutMemory("a thread was left running");
}

// Holds the numbers of standard streams that whoever started the process has
// closed: a file or socket with such a number would get what is printed, here
// or in a child. Reads and writes fail as on a closed stream.
static void holdStandardStreams() {
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF)
      (void)!open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int guarded(const std::function<int()> &body) {
  holdStandardStreams();
  std::set_terminate(endByException);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return int(printError(runError("out of memory")));
  } catch (const std::exception &fault) {
    return int(printError(runError(fault.what())));
  }
}

void outliveReaders() { std::signal(SIGPIPE, SIG_IGN); }

} // namespace fsdpc::runtime
