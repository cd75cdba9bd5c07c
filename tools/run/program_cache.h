// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programs that `fsdpc run` has compiled, by the content of all that decides
// them. What a program is made of is part of its name, so a file is never
// wrong, and two writers write the same.
#pragma once

#include "runtime/support/status.h"
#include "tools/run/arguments.h"

#include <string>

namespace fsdpc::run {

/// A program to start. Removes the file at the end if no cache keeps it.
class Program {
public:
  explicit Program(std::string path) : path(std::move(path)) {}
  Program(Program &&other) noexcept;
  Program &operator=(Program &&) = delete;
  ~Program();

  std::string path;      ///< absolute
  std::string temporary; ///< a folder to remove; empty: none
};

/// Returns the program of a model, compiled now or earlier, or the one that is
/// given. `code` is the compiler's exit code if it refuses the model; it has
/// printed why.
Result<Program> findProgramOf(const Arguments &arguments, int &code);

} // namespace fsdpc::run
