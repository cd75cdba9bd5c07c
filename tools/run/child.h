// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A process that this one starts and watches. It has a process group of its
// own, so that Ctrl-C of a terminal reaches only this process, which decides
// what to tell the child. The child gets SIGTERM if this process dies.
#pragma once

#include "runtime/support/status.h"

#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace fsdpc::run {

struct ChildOptions {
  bool quiet = false; ///< drops what the child prints
  bool piped = false; ///< keeps its standard input open for Child::tell
};

/// Owns the process: one that still runs is killed by the destructor.
class Child {
public:
  Child() = default; ///< not started
  Child(Child &&other) noexcept;
  Child &operator=(Child &&other) noexcept;
  ~Child();

  /// Starts words[0], which findProgram finds, with no standard input.
  static Result<Child> start(std::vector<std::string> words,
                             ChildOptions options = {});
  bool isRunning() const { return process > 0; }
  pid_t id() const { return process; }
  /// Returns the exit code once the process has ended, or 128 + N if signal N
  /// has ended it.
  std::optional<int> poll();
  /// Sends a signal to the process alone, or to its whole group.
  void signal(int number) const;
  void signalGroup(int number) const;
  /// Writes to the standard input of a piped child.
  void tell(const std::string &text) const;

private:
  void end();
  pid_t process = -1;
  int input = -1;
};

/// Returns a remote shell's words: its options may follow its name, separated
/// by spaces. ssh gets options that never ask and notice a dead host.
std::vector<std::string> agentWords(const std::string &agent);

} // namespace fsdpc::run
