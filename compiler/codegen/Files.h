// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Temporary files of a compile, and the external tools that read and write
// them.
#pragma once

#include "runtime/support/watched_folder.h"

#include "mlir/IR/Location.h"
#include "mlir/Support/LLVM.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallString.h"

#include <string>

namespace fsdpc::codegen {

/// A folder that the destructor removes with all that is in it, and a signal
/// that ends the compile likewise. The constructor emits an error at `loc` if
/// it cannot make one; check valid() before use.
class TemporaryFolder {
public:
  explicit TemporaryFolder(mlir::Location loc);
  ~TemporaryFolder();
  bool valid() const { return !path().empty(); }
  /// Empty if the folder could not be created.
  llvm::StringRef path() const { return folder.path(); }

private:
  WatchedFolder folder;
};

/// Writes `bytes` to the file `path`, which appears whole or not at all.
/// Returns an error message, or "" on success.
std::string writeFile(llvm::StringRef path, llvm::StringRef bytes);

/// Copies a program to a file in the same way, and makes it executable.
std::string copyProgram(llvm::StringRef from, llvm::StringRef to);

/// Runs the program at the path `words[0]` with the remaining words as
/// arguments, in the environment of runtime/support/programs.h, and waits for
/// it. Its temporary files go to `folder`. If `outputFile` is given, stdout and
/// stderr go there. Returns "" if the program exits with 0, else a message with
/// the command and, if known, its output.
std::string runProgram(llvm::ArrayRef<std::string> words,
                       llvm::StringRef folder, llvm::StringRef outputFile = "");

} // namespace fsdpc::codegen
