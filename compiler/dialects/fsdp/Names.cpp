// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/dialects/fsdp/Names.h"
#include "compiler/dialects/fsdp/SymbolNames.h"

using namespace mlir;

namespace fsdpc::fsdp {

SmallVector<StringRef> namesOf(ParameterOp parameter) {
  SmallVector<StringRef> names = {nameOf(parameter)};
  if (auto aliases = parameter.getAliasesAttr())
    for (auto alias : aliases.getAsRange<StringAttr>())
      names.push_back(alias.getValue());
  return names;
}

bool matches(NamePatterns &patterns, ParameterOp parameter) {
  bool any = false;
  for (StringRef name : namesOf(parameter))
    any |= patterns.match(name);
  return any;
}

} // namespace fsdpc::fsdp
