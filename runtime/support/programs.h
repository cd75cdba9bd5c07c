// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds and starts other programs: the linker driver, Python, mpirun. A program
// or library that lies in the working folder must never run because of its name
// alone, so empty and relative folders in PATH and its like are skipped: the
// system would take them for the working folder.
#pragma once

#include "runtime/support/status.h"

#include <string>
#include <vector>

namespace fsdpc {

/// Returns the path of an executable file. A name with a slash is a path that
/// the user has chosen and is returned as it is; any other is looked up in the
/// absolute folders of PATH. The caller adds to the error how to get the
/// program.
Result<std::string> findProgram(const std::string &name);

/// Returns the absolute path of the program that this process runs, without
/// links, or an empty text if neither /proc nor the path of its start leads
/// there any more. Call it before the working folder changes.
std::string ownProgram();

/// Returns the environment for a program that this process starts, as
/// NAME=VALUE. It is this process's own, but the variables that list folders of
/// programs, libraries and Python modules keep their absolute folders only.
std::vector<std::string> environmentForPrograms();

/// Returns a word in quotes such that a POSIX shell takes it as it is.
std::string shellQuoted(const std::string &word);

/// Returns pointers to the texts and a null at the end, as exec takes them;
/// valid as long as the texts are.
std::vector<char *> pointersTo(std::vector<std::string> &texts);

/// Runs words[0], which findProgram finds, with the other words as arguments,
/// in the environment above, and waits for it. The descriptor `input` becomes
/// its standard input. Returns its exit code, or 128 + N if signal N has ended
/// it, as shells do.
Result<int> runAndWait(std::vector<std::string> words, int input = 0);

/// Replaces this process by such a program. Returns only if that fails.
Error replaceProcess(std::vector<std::string> words);

} // namespace fsdpc
