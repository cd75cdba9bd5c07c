// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Temporary files and external tools of a compile (Files.h). Files appear under
// their names whole or not at all: they are written beside and renamed.

#include "compiler/codegen/Files.h"

#include "runtime/support/concat.h"
#include "runtime/support/output_file.h"
#include "runtime/support/programs.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"

#include <cstdlib>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

TemporaryFolder::TemporaryFolder(Location loc) {
  llvm::SmallString<128> prefix;
  llvm::sys::path::system_temp_directory(/*ErasedOnReboot=*/true, prefix);
  llvm::sys::path::append(prefix, "fsdpc-");
  if (Status made = folder.make(prefix.str().str()); !made)
    emitError(loc) << "cannot create a temporary folder '" << prefix
                   << "XXXXXX': " << made.error().message;
}

TemporaryFolder::~TemporaryFolder() {
  if (valid())
    llvm::sys::fs::remove_directories(path());
}

std::string fsdpc::codegen::writeFile(StringRef path, StringRef bytes) {
  Status written = writeWhole(path.str(), bytes.data(), bytes.size());
  return written ? "" : written.error().message;
}

// Replaces `to` by a rename, so a program that is running while it is compiled
// again keeps its old file.
std::string fsdpc::codegen::copyProgram(StringRef from, StringRef to) {
  auto program = llvm::MemoryBuffer::getFile(from, /*IsText=*/false,
                                             /*RequiresNullTerminator=*/false);
  if (!program)
    return ("cannot read '" + from + "': " + program.getError().message())
        .str();
  StringRef bytes = (*program)->getBuffer();
  Status written =
      writeWhole(to.str(), bytes.data(), bytes.size(), /*mode=*/0777);
  return written ? "" : written.error().message;
}

// An empty redirect stands for /dev/null, so a tool that asks for input does
// not hang the compile. stdout and stderr share the file.
std::string fsdpc::codegen::runProgram(ArrayRef<std::string> words,
                                       StringRef folder, StringRef outputFile) {
  SmallVector<StringRef> arguments(words.begin(), words.end());
  SmallVector<std::optional<StringRef>> redirects;
  if (!outputFile.empty())
    redirects = {StringRef(), outputFile, outputFile};
  std::vector<std::string> variables = environmentForPrograms();
  llvm::erase_if(variables, [](StringRef variable) {
    return variable.starts_with("TMPDIR=");
  });
  variables.push_back(("TMPDIR=" + folder).str());
  SmallVector<StringRef> environment(variables.begin(), variables.end());
  std::string message;
  int code =
      llvm::sys::ExecuteAndWait(arguments[0], arguments, ArrayRef(environment),
                                redirects, 0, 0, &message);
  if (code == 0)
    return "";
  // A tool that ran and failed has explained itself in its output; a tool that
  // could not be started has left `message`.
  if (message.empty() && !outputFile.empty())
    if (auto text = llvm::MemoryBuffer::getFile(outputFile))
      message = (*text)->getBuffer().trim().str();
  return concat("'", llvm::join(words, " "), "' failed with status ", code,
                message.empty() ? "" : ": ", message);
}
