// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lines for people. Names in them come from models and dumps.
#pragma once

#include "llvm/Support/raw_ostream.h"

namespace fsdpc::driver {

/// stdout and stderr for lines that people read: what would command a terminal
/// is escaped (runtime::printableLines). A line is passed on when it is whole.
/// On a terminal it is broken at spaces, to the terminal's width or 100
/// columns. Modules, whose text MLIR escapes, go to llvm::outs().
llvm::raw_ostream &textOut();
llvm::raw_ostream &textErr();

} // namespace fsdpc::driver
