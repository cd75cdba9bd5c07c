// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/dialects/fsdp/SymbolNames.h"

#include "compiler/dialects/fsdp/Entries.h"

using namespace mlir;

namespace fsdpc::fsdp {
namespace {

constexpr llvm::StringLiteral kTensorMark = "tensor:", kInputMark = "input:";

// Entry functions are found by their names, those of further buckets by a
// number behind them (nameInBucket).
bool isEntry(StringRef name) {
  for (StringRef entry :
       {StringRef(FSDPDialect::kMicrobatch), StringRef(kEvaluate)}) {
    StringRef rest = name;
    if (rest.consume_front(entry) &&
        (rest.empty() ||
         (rest.consume_front("_") && llvm::all_of(rest, llvm::isDigit))))
      return true;
  }
  return name == FSDPDialect::kUpdate;
}

// A name that looks marked is marked as well, so that each symbol has one name.
bool needsMark(StringRef name) {
  return isEntry(name) || name.starts_with(kTensorMark) ||
         name.starts_with(kInputMark);
}

} // namespace

std::string symbolOfTensor(StringRef name) {
  return needsMark(name) ? (kTensorMark + name).str() : name.str();
}

std::string symbolOfInput(StringRef name, const SymbolTable &symbols) {
  Operation *other = symbols.lookup(name);
  bool isOwn = other && other->getName().getStringRef() == "rt.input";
  return needsMark(name) || (other && !isOwn) ? (kInputMark + name).str()
                                              : name.str();
}

std::string nameOfUnit(StringRef name) {
  return isEntry(name) ? (name + ".unit").str() : name.str();
}

StringRef nameOfSymbol(StringRef symbol) {
  if (!symbol.consume_front(kTensorMark))
    symbol.consume_front(kInputMark);
  return symbol;
}

StringRef nameOf(ParameterOp parameter) {
  return nameOfSymbol(parameter.getSymName());
}

} // namespace fsdpc::fsdp
