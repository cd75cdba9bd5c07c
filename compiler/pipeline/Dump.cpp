// Writes modules as text that can be read, edited and compiled further, and
// reads them back. Large constants are files of their own, named by their hash:
// the text stays readable, equal constants are stored once, and a file that was
// swapped or truncated is detected.
#include "compiler/pipeline/Dump.h"

#include "compiler/dialects/nn/NNDialect.h"

#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::pipeline;

static constexpr size_t largestInline = 4096; // bytes
static constexpr llvm::StringLiteral prefix = "constant_";

static std::string hashOf(ArrayRef<char> bytes) {
  llvm::SHA256 sha;
  sha.update(StringRef(bytes.data(), bytes.size()));
  auto digest = sha.final();
  return llvm::toHex(ArrayRef<uint8_t>(digest).take_front(16),
                     /*LowerCase=*/true);
}

// Writes to a temporary name and renames it, so that a failure leaves the old
// file in place.
static LogicalResult writeFile(Location loc, StringRef path,
                               llvm::function_ref<void(raw_ostream &)> write) {
  std::string temporary = (path + ".tmp").str();
  std::error_code error;
  {
    llvm::raw_fd_ostream stream(temporary, error);
    if (!error) {
      write(stream);
      stream.close();
      error = stream.error();
      stream.clear_error();
    }
  }
  if (!error)
    error = llvm::sys::fs::rename(temporary, path);
  if (!error)
    return success();
  llvm::sys::fs::remove(temporary);
  return emitError(loc) << "cannot write '" << path << "': " << error.message();
}

static std::string constantPath(StringRef dump, StringRef key) {
  llvm::SmallString<128> path(llvm::sys::path::parent_path(dump));
  llvm::sys::path::append(path, key + ".bin");
  return path.str().str();
}

// Replaces the large constants of a module, which is a copy made for printing,
// with references to files, and writes those that do not exist yet.
static LogicalResult moveConstantsOut(ModuleOp module, StringRef path) {
  auto result = module.walk([&](Operation *op) {
    auto value = op->getAttrOfType<DenseElementsAttr>("value");
    if (!value || value.isSplat() || value.getRawData().size() <= largestInline)
      return WalkResult::advance();
    ArrayRef<char> bytes = value.getRawData();
    std::string key = (prefix + hashOf(bytes)).str();
    std::string file = constantPath(path, key);
    if (!llvm::sys::fs::exists(file) &&
        failed(writeFile(op->getLoc(), file, [&](raw_ostream &stream) {
          stream.write(bytes.data(), bytes.size());
        })))
      return WalkResult::interrupt();
    auto &manager =
        DenseResourceElementsHandle::getManagerInterface(module.getContext());
    op->setAttr("value",
                DenseResourceElementsAttr::get(
                    cast<ShapedType>(value.getType()), manager.insert(key)));
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

// Replaces references to files with the constants themselves.
static LogicalResult moveConstantsIn(ModuleOp module, StringRef path) {
  auto result = module.walk([&](Operation *op) {
    auto value = op->getAttrOfType<DenseResourceElementsAttr>("value");
    if (!value)
      return WalkResult::advance();
    StringRef key = value.getRawHandle().getKey();
    key =
        key.substr(0, prefix.size() + 32); // less a number that made it unique
    if (!key.starts_with(prefix)) {
      op->emitError("constant '")
          << key
          << "' was elided; print the module again without eliding constants";
      return WalkResult::interrupt();
    }
    std::string file = constantPath(path, key);
    auto buffer = llvm::MemoryBuffer::getFile(file, /*IsText=*/false,
                                              /*RequiresNullTerminator=*/false);
    if (!buffer) {
      op->emitError("cannot read constant '")
          << file << "': " << buffer.getError().message()
          << "; keep the file next to the dump";
      return WalkResult::interrupt();
    }
    ArrayRef<char> bytes((*buffer)->getBufferStart(),
                         (*buffer)->getBufferSize());
    auto type = cast<ShapedType>(value.getType());
    bool isSplat = false;
    if (hashOf(bytes) != key.substr(prefix.size()) ||
        !DenseElementsAttr::isValidRawBuffer(type, bytes, isSplat)) {
      op->emitError("constant '") << file
                                  << "' does not match the hash in its name or "
                                     "its type; write the dump again";
      return WalkResult::interrupt();
    }
    op->setAttr("value", DenseElementsAttr::getFromRawBuffer(type, bytes));
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

LogicalResult fsdpc::pipeline::writeDump(ModuleOp module, StringRef path) {
  OwningOpRef<ModuleOp> copy = module.clone();
  if (failed(moveConstantsOut(*copy, path)))
    return failure();
  return writeFile(module.getLoc(), path, [&](raw_ostream &stream) {
    copy->print(stream, OpPrintingFlags().enableDebugInfo(
                            /*enable=*/true, /*prettyForm=*/false));
    stream << '\n';
  });
}

LogicalResult fsdpc::pipeline::writeNumberedDump(ModuleOp module,
                                                 StringRef folder,
                                                 unsigned number,
                                                 StringRef name) {
  if (std::error_code error = llvm::sys::fs::create_directories(folder))
    return emitError(module.getLoc())
           << "cannot create folder '" << folder << "': " << error.message();
  llvm::SmallString<128> path(folder);
  std::string file;
  llvm::raw_string_ostream(file)
      << llvm::format("%02u-", number) << name << ".mlir";
  llvm::sys::path::append(path, file);
  return writeDump(module, path);
}

OwningOpRef<ModuleOp> fsdpc::pipeline::readDump(StringRef path,
                                                MLIRContext *context) {
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(path, context);
  if (!module || failed(moveConstantsIn(*module, path)))
    return nullptr;
  return module;
}
