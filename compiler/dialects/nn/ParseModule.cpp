// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps texts from MLIR's parser that would end the process there: it calls
// itself for each bracket, and allocates results by their number. Its errors
// about other texts are reduced to one.
#include "compiler/dialects/nn/ParseModule.h"

#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

#include <optional>

using namespace mlir;
using namespace fsdpc;

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

// Returns the position behind a word that begins at `at`, such as a keyword or
// a symbol without quotes, which may end in any number of digits.
static size_t afterWord(StringRef text, size_t at) {
  while (at < text.size() &&
         (llvm::isAlnum(text[at]) || StringRef("_$.").contains(text[at])))
    ++at;
  return at;
}

// Returns why MLIR's parser must not see a text, or "". The parser calls itself
// for each bracket, and its stack ends at some ten thousand; it allocates as
// many results as the number of one says; and its time for a number is
// quadratic in the digits.
static StringRef whyUnparsable(StringRef text) {
  constexpr int deepest = 256;
  constexpr size_t mostDigits = 1000;
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
    } else if (llvm::isAlpha(c) || c == '_') {
      i = afterWord(text, i) - 1;
    } else if (llvm::isDigit(c)) {
      size_t end = text.find_first_not_of("0123456789", i);
      end = std::min(end, text.size());
      if (end - i > mostDigits)
        return "a number has more than 1000 digits, which no module needs";
      i = end - 1;
    } else if (StringRef("([{<").contains(c)) {
      if (++depth > deepest)
        return "brackets are nested more than 256 deep, which no module needs";
    } else if (StringRef(")]}").contains(c) || isClosingAngle(text, i)) {
      // The parser stops at a bracket too many, if it comes that far.
      depth = std::max(depth - 1, 0);
    }
  }
  return "";
}

// Parses the text, and emits the first of the parser's errors alone: those that
// follow come of it.
static OwningOpRef<ModuleOp> parse(const std::string &text, StringRef path,
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

// Sizes of memory are computed from shapes everywhere, so no tensor may be so
// large that the sums of them overflow.
static LogicalResult verifySizes(ModuleOp module) {
  AttrTypeWalker walker;
  walker.addWalk([](RankedTensorType type) {
    int64_t elements = 1;
    for (int64_t size : type.getShape())
      if (size < 0 || llvm::MulOverflow(elements, size, elements) ||
          elements > nn::kMostElements)
        return WalkResult::interrupt();
    return WalkResult::advance();
  });
  auto isTooLarge = [&](Type type) {
    return walker.walk(type).wasInterrupted();
  };
  WalkResult result = module.walk([&](Operation *op) -> WalkResult {
    bool fits = !llvm::any_of(op->getResultTypes(), isTooLarge) &&
                !walker.walk(op->getAttrDictionary()).wasInterrupted();
    for (Region &region : op->getRegions())
      for (Block &block : region)
        fits &= !llvm::any_of(block.getArgumentTypes(), isTooLarge);
    if (fits)
      return WalkResult::advance();
    return op->emitOpError("has a tensor whose size is unknown or exceeds 2^40 "
                           "elements");
  });
  return failure(result.wasInterrupted());
}

// The text is checked before the parser sees it.
OwningOpRef<ModuleOp> nn::parseModule(const std::string &text, StringRef path,
                                      MLIRContext *context,
                                      ArrayRef<FormerAttribute> former) {
  if (StringRef why = whyUnparsable(text); !why.empty())
    return emitError(FileLineColLoc::get(context, path, 1, 1)) << why, nullptr;
  OwningOpRef<ModuleOp> module = parse(text, path, context);
  if (!module || failed(verifySizes(*module)) ||
      failed(verifyKnownAttributes(*module, former)))
    return nullptr;
  return module;
}
