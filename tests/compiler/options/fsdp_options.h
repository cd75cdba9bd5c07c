// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Options that are set as on a command line, for tests.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/options/OptionTable.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace fsdpc::fsdp {

class OptionsTest : public testing::Test {
protected:
  OptionsTest() { context.loadDialect<FSDPDialect>(); }

  /// Sets an option as on the command line. Returns the error.
  std::string set(llvm::StringRef name, llvm::StringRef text) {
    return setOption(*findOption(name), text, options);
  }

  /// Returns the options after a way through the attribute of a module.
  CompileOptions reread() {
    mlir::OwningOpRef<mlir::ModuleOp> module =
        mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
    (*module)->setAttr(CompileOptions::kAttribute,
                       writeOptions(options, &context));
    return CompileOptions::of(*module);
  }

  mlir::MLIRContext context;
  CompileOptions options;
};

} // namespace fsdpc::fsdp
