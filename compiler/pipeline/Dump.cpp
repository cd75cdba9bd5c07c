// Writes modules as text that can be read, edited and compiled further, and
// reads them back. Large constants are files of their own, named by their hash:
// the text stays readable, equal constants are stored once, and a file that was
// swapped or truncated is detected.
#include "compiler/pipeline/Dump.h"

#include "compiler/dialects/nn/DiscardableAttributes.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "shared/output_file.h"

#include "mlir/IR/BuiltinDialect.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::pipeline;

static constexpr size_t largestInline = 4096; // bytes
static constexpr llvm::StringLiteral prefix = "constant_";

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
    if (!value || value.isSplat() || value.getRawData().size() <= largestInline)
      return WalkResult::advance();
    ArrayRef<char> bytes = value.getRawData();
    std::string key = (prefix + hashOf(bytes)).str();
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

static Result<std::string> readFile(StringRef path,
                                    std::set<FileIdentity> &files) {
  Result<InputFile> file = InputFile::open(path.str());
  if (!file)
    return file.error();
  // Remembers each file that is read, so that the driver can refuse to
  // overwrite it.
  files.insert(file->identity());
  return file->readAll();
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
        key.substr(0, prefix.size() + 32); // less a number that made it unique
    if (!key.starts_with(prefix)) {
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
  // The module itself must keep its constants, since passes go on with it.
  OwningOpRef<ModuleOp> copy = module.clone();
  if (failed(moveConstantsOut(*copy, path)))
    return failure();
  return writeFile(module.getLoc(), path, [&](raw_ostream &stream) {
    // Locations are written: the names of ONNX nodes must survive the way
    // through a dump.
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
  return writeDump(module, dumpPath(folder, number, name));
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

// Returns the position after a result number that follows the name of a value
// at `at`, as in %x#1 or %x:2, or nullopt if the number has over five digits.
static std::optional<size_t> afterResultNumber(StringRef text, size_t at) {
  auto skip = [&](auto matches) {
    size_t begin = at;
    while (at < text.size() && matches(text[at]))
      ++at;
    return at - begin;
  };
  // Characters that a value's name may have, in MLIR's lexer.
  skip([](char c) {
    return llvm::isAlnum(c) || StringRef("_$.-%").contains(c);
  });
  size_t end = at;
  // White space may separate the name from the number.
  skip(llvm::isSpace);
  if (at >= text.size() || (text[at] != '#' && text[at] != ':'))
    return end;
  ++at;
  skip(llvm::isSpace);
  size_t digits = skip(llvm::isDigit);
  return digits > 5 ? std::nullopt : std::optional(digits ? at : end);
}

// Returns true if a '>' closes a '<'. That of an arrow `->` and that of `>=` in
// an integer set close nothing; counted as brackets, they would make room for
// deeper nesting.
static bool isClosingAngle(StringRef text, size_t at) {
  return text[at] == '>' && (at == 0 || text[at - 1] != '-') &&
         !text.substr(at + 1).starts_with("=");
}

// Returns why MLIR's parser must not see a text, or "". The parser calls itself
// for each bracket, and its stack ends at some ten thousand; and it allocates
// as many results as the number of one says.
static StringRef whyUnparsable(StringRef text) {
  constexpr int deepest = 256;
  int depth = 0;
  // The scan is not a parser: it skips strings and comments and counts
  // brackets, so that it takes linear time and no stack.
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"' && text[i] != '\n'; ++i)
        i += text[i] == '\\';
    } else if (c == '/' && text.substr(i, 2) == "//") {
      i = std::min(text.find('\n', i), text.size());
    } else if (c == '%') {
      std::optional<size_t> after = afterResultNumber(text, i);
      if (!after)
        return "the number of a result has more than five digits";
      // Continues behind the name and the number.
      i = *after - 1;
    } else if (StringRef("([{<").contains(c)) {
      if (++depth > deepest)
        return "brackets are nested more than 256 deep, which no dump needs";
    } else if (StringRef(")]}").contains(c) || isClosingAngle(text, i)) {
      // The parser stops at a bracket too many, if it comes that far.
      depth = std::max(depth - 1, 0);
    }
  }
  return "";
}

// Parses a dump, and emits the first of the parser's errors alone: those that
// follow come of it.
static OwningOpRef<ModuleOp> parse(StringRef text, StringRef path,
                                   MLIRContext *context) {
  std::optional<Diagnostic> first;
  OwningOpRef<ModuleOp> module;
  // The handler swallows all other diagnostics, so the first is emitted when
  // the handler is gone.
  {
    ScopedDiagnosticHandler handler(context, [&](Diagnostic &diagnostic) {
      if (diagnostic.getSeverity() == DiagnosticSeverity::Error && !first)
        first = std::move(diagnostic);
      return success();
    });
    llvm::SourceMgr sources;
    sources.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBuffer(text, path),
                               llvm::SMLoc());
    module = parseSourceFile<ModuleOp>(sources, context);
  }
  if (first)
    context->getDiagEngine().emit(std::move(*first));
  return module;
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
  Location start = FileLineColLoc::get(context, path, 1, 1);
  if (!text)
    return emitError(UnknownLoc::get(context)) << text.error().message, nullptr;
  // Checked before the parser sees the text: a crafted dump would otherwise end
  // the process.
  if (StringRef why = whyUnparsable(*text); !why.empty())
    return emitError(start) << why, nullptr;
  OwningOpRef<ModuleOp> module = parse(*text, path, context);
  if (!module || failed(nn::verifyKnownAttributes(*module, formerAttributes)) ||
      failed(moveConstantsIn(*module, path, read)))
    return nullptr;
  return module;
}
