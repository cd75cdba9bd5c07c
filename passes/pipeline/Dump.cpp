// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes modules as text that can be read, edited and compiled further, and
// reads them back. Large constants are files of their own, named by their hash:
// the text stays readable, equal constants are stored once, and a file that was
// swapped or truncated is detected.
#include "passes/pipeline/Dump.h"

#include "compiler/dialects/nn/ParseModule.h"
#include "passes/pipeline/ShortForm.h"
#include "runtime/support/output_file.h"

#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::pipeline;

static constexpr size_t kLargestInline = 4096; // bytes
static constexpr llvm::StringLiteral kPrefix = "constant_";

// 16 bytes of SHA-256 suffice: the name only has to tell constants apart and
// detect damage.
static std::string hashOf(ArrayRef<char> bytes) {
  llvm::SHA256 sha;
  sha.update(StringRef(bytes.data(), bytes.size()));
  auto digest = sha.final();
  return llvm::toHex(ArrayRef<uint8_t>(digest).take_front(16),
                     /*LowerCase=*/true);
}

// The file appears whole or not at all.
static LogicalResult writeFile(Location loc, StringRef path,
                               llvm::function_ref<void(raw_ostream &)> write) {
  Result<OutputFile> file = OutputFile::create(path.str());
  if (!file)
    return emitError(loc) << file.error().message;
  llvm::raw_fd_ostream stream(file->descriptor(), /*shouldClose=*/false);
  write(stream);
  stream.flush();
  if (std::error_code error = stream.error()) {
    stream.clear_error();
    return emitError(loc) << "cannot write '" << path
                          << "': " << error.message();
  }
  if (Status named = file->commit(); !named)
    return emitError(loc) << named.error().message;
  return success();
}

// Returns the file of a constant, in the folder of the dump.
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
    // Splats and small constants stay in the text, where they can be edited.
    if (!value || value.isSplat() ||
        value.getRawData().size() <= kLargestInline)
      return WalkResult::advance();
    ArrayRef<char> bytes = value.getRawData();
    std::string key = (kPrefix + hashOf(bytes)).str();
    std::string file = constantPath(path, key);
    // Its name is its hash, so an existing file is not written again.
    if (!llvm::sys::fs::exists(file) &&
        failed(writeFile(op->getLoc(), file, [&](raw_ostream &stream) {
          stream.write(bytes.data(), bytes.size());
        })))
      return WalkResult::interrupt();
    auto &manager =
        DenseResourceElementsHandle::getManagerInterface(module.getContext());
    // The resource has a key and no data: the text names the file, and nothing
    // is embedded.
    op->setAttr("value",
                DenseResourceElementsAttr::get(
                    cast<ShapedType>(value.getType()), manager.insert(key)));
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

// Of a dump, or of a constant beside it.
static constexpr uint64_t kMostBytes = uint64_t(4) << 30;

static Result<std::string> readFile(StringRef path,
                                    std::set<FileIdentity> &files) {
  Result<InputFile> file = InputFile::open(path.str());
  if (!file)
    return file.error();
  // Remembers each file that is read, so that the driver can refuse to
  // overwrite it.
  files.insert(file->identity());
  return file->readAll(kMostBytes);
}

// Replaces references to files with the constants themselves.
static LogicalResult moveConstantsIn(ModuleOp module, StringRef path,
                                     std::set<FileIdentity> &files) {
  auto result = module.walk([&](Operation *op) {
    auto value = op->getAttrOfType<DenseResourceElementsAttr>("value");
    if (!value)
      return WalkResult::advance();
    StringRef key = value.getRawHandle().getKey();
    key =
        key.substr(0, kPrefix.size() + 32); // less a number that made it unique
    if (!key.starts_with(kPrefix)) {
      op->emitError("constant '")
          << key
          << "' was elided; print the module again without eliding constants";
      return WalkResult::interrupt();
    }
    std::string file = constantPath(path, key);
    Result<std::string> content = readFile(file, files);
    if (!content) {
      op->emitError("constant without its file: ")
          << content.error().message << "; keep the file next to the dump";
      return WalkResult::interrupt();
    }
    ArrayRef<char> bytes(content->data(), content->size());
    auto type = cast<ShapedType>(value.getType());
    bool isSplat = false;
    // isValidRawBuffer checks the size against the type, which may have been
    // edited.
    if (hashOf(bytes) != key.substr(kPrefix.size()) ||
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

LogicalResult fsdpc::pipeline::writeDump(ModuleOp module, StringRef path,
                                         DumpForm form) {
  // The module itself must keep its constants, since passes go on with it.
  OwningOpRef<ModuleOp> copy = module.clone();
  if (failed(moveConstantsOut(*copy, path)))
    return failure();
  // Locations are written: the names of ONNX nodes must survive the way through
  // a dump.
  OpPrintingFlags flags;
  flags.enableDebugInfo(/*enable=*/true, /*prettyForm=*/false);
  return writeFile(module.getLoc(), path, [&](raw_ostream &stream) {
    if (form == DumpForm::Full) {
      copy->print(stream, flags);
      stream << '\n';
      return;
    }
    shorten(*copy);
    std::string text;
    llvm::raw_string_ostream printed(text);
    copy->print(printed, flags);
    stream << brokenLines(text);
  });
}

LogicalResult fsdpc::pipeline::writeNumberedDump(ModuleOp module,
                                                 StringRef folder,
                                                 unsigned number,
                                                 StringRef name,
                                                 DumpForm form) {
  if (std::error_code error = llvm::sys::fs::create_directories(folder))
    return emitError(module.getLoc())
           << "cannot create folder '" << folder << "': " << error.message();
  return writeDump(module, dumpPath(folder, number, name), form);
}

std::string fsdpc::pipeline::dumpPath(StringRef folder, unsigned number,
                                      StringRef name) {
  llvm::SmallString<128> path(folder);
  std::string file;
  llvm::raw_string_ostream(file)
      << llvm::format("%02u-", number) << name << ".mlir";
  llvm::sys::path::append(path, file);
  return path.str().str();
}

// Attributes that dumps of earlier versions have.
static constexpr nn::FormerAttribute formerAttributes[] = {
    {"fsdp.unit", "recompute",
     "compile the model with '--recompute=units' and '--recompute-scope', or "
     "mark ops of the forward with 'fsdp.recompute'"}};

OwningOpRef<ModuleOp> fsdpc::pipeline::readDump(StringRef path,
                                                MLIRContext *context,
                                                std::set<FileIdentity> *files) {
  std::set<FileIdentity> unasked;
  std::set<FileIdentity> &read = files ? *files : unasked;
  Result<std::string> text = readFile(path, read);
  if (!text)
    return emitError(UnknownLoc::get(context)) << text.error().message, nullptr;
  OwningOpRef<ModuleOp> module =
      nn::parseModule(*text, path, context, formerAttributes);
  if (!module || failed(moveConstantsIn(*module, path, read)) ||
      failed(restore(*module)))
    return nullptr;
  return module;
}
