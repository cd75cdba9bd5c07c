#include "compiler/codegen/Files.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;

TemporaryFolder::TemporaryFolder(Location loc) {
  if (std::error_code error =
          llvm::sys::fs::createUniqueDirectory("fsdpc", path))
    emitError(loc) << "cannot create a temporary folder: " << error.message();
}

TemporaryFolder::~TemporaryFolder() {
  if (valid())
    llvm::sys::fs::remove_directories(path);
}

std::string fsdpc::codegen::writeFile(StringRef path, StringRef bytes) {
  std::error_code error;
  llvm::raw_fd_ostream stream(path, error);
  if (!error) {
    stream << bytes;
    stream.close();
    error = stream.error();
    stream.clear_error();
  }
  return error ? ("cannot write '" + path + "': " + error.message()).str() : "";
}

std::string fsdpc::codegen::runProgram(ArrayRef<std::string> words,
                                       StringRef outputFile) {
  SmallVector<StringRef> arguments(words.begin(), words.end());
  SmallVector<std::optional<StringRef>> redirects;
  if (!outputFile.empty())
    redirects = {StringRef(), outputFile, outputFile};
  std::string message;
  int code = llvm::sys::ExecuteAndWait(arguments[0], arguments, std::nullopt,
                                       redirects, 0, 0, &message);
  if (code == 0)
    return "";
  if (message.empty() && !outputFile.empty())
    if (auto text = llvm::MemoryBuffer::getFile(outputFile))
      message = (*text)->getBuffer().trim().str();
  return "'" + llvm::join(words, " ") + "' failed with status " +
         std::to_string(code) + (message.empty() ? "" : ": ") + message;
}
