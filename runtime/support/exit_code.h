// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The exit codes of programs, of fsdpc and of its subcommands. This is the one
// table of them: docs/jobs.md repeats its rows, and frontends/torch raises an
// exception for each (the test `exit_codes` compares all three).
#pragma once

namespace fsdpc {

enum class ExitCode {
  success = 0,
  /// A file, a value in one, a variable of the launcher or the machine does not
  /// fit. The same start would fail again.
  wrongInput = 1,
  /// A flag is unknown, has a wrong value or lacks another flag.
  wrongCommandLine = 2,
  /// The run itself failed: a disk is full, memory is short, the loss is not
  /// finite. Another start will most likely fail again.
  runFailed = 3,
  /// A signal or --time-limit ended the run after a whole step, and all that it
  /// writes at its end is written.
  interrupted = 4,
  /// A machine, a process of another rank or a link failed: a rank was lost,
  /// did not join, or made no progress. Another start may succeed.
  machineFailed = 5,
};

} // namespace fsdpc
