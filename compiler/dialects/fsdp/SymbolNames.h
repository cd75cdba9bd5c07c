// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A module has one table of symbols for tensors of the model, whose names are
// the user's, and for functions, units and layouts, whose names are ours. Both
// may be any text. A tensor's symbol is its name, unless that is the name of an
// entry function: it is then marked, as in @"tensor:update". An input may have
// the name of a parameter or of a unit too, and is then @"input:NAME". Units
// avoid the names of entry functions, which come after them. All other symbols
// take another name if theirs is taken.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"

#include "mlir/IR/SymbolTable.h"

namespace fsdpc::fsdp {

/// Returns the symbol of a parameter or buffer.
std::string symbolOfTensor(llvm::StringRef name);

/// Returns the symbol of an input, which the table may have already.
std::string symbolOfInput(llvm::StringRef name,
                          const mlir::SymbolTable &symbols);

/// Returns the name of a unit for a module or parameter of the model:
/// "update.unit" for "update", and the name itself for others.
std::string nameOfUnit(llvm::StringRef name);

/// Returns the user's name of a parameter, a buffer or an input.
llvm::StringRef nameOfSymbol(llvm::StringRef symbol);
llvm::StringRef nameOf(ParameterOp parameter);

} // namespace fsdpc::fsdp
