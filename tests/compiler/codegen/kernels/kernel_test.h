// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The fixture of the tests of kernels: kernels as text, compiled as host loops
// or as grids of threads and compared with the reference interpreter.
#pragma once

#include "tests/compiler/codegen/kernels/kernel_harness.h"

#include "llvm/Support/FormatVariadic.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace fsdpc::testing {

/// Replaces each `$X` with its value in `names`.
inline std::string
expand(std::string text,
       const std::vector<std::pair<std::string, std::string>> &names) {
  for (const auto &[name, value] : names)
    for (size_t at; (at = text.find("$" + name)) != std::string::npos;)
      text.replace(at, name.size() + 1, value);
  return text;
}

/// The parameter is the number of threads per block of a grid, or 0 for loops.
class KernelTest : public ::testing::TestWithParam<int> {
protected:
  KernelTest() { prepareContext(context); }

  /// `body` is the text after the function's name.
  void add(const std::string &body) {
    text += llvm::formatv("func.func private @k{0}{1}\n", count++, body);
  }

  /// Grids have no erf and no atan for f64.
  bool hasCode(const std::string &op, const std::string &type) {
    return !GetParam() || type != "f64" ||
           (op.find("erf") == std::string::npos && op != "atan");
  }

  void runAll(const std::string &cpu = "native") {
    LoadedKernels loaded(context, text, cpu, GetParam());
    for (mlir::func::FuncOp kernel : loaded.kernels())
      EXPECT_EQ("", checkKernel(loaded, kernel));
    std::printf("%d kernels compiled in %.0f ms, %zu KiB of objects\n", count,
                loaded.compileMs, loaded.objectBytes / 1024);
  }

  mlir::MLIRContext context;
  std::string text;
  int count = 0;
};

inline const char *const kSizes[] = {"1", "15", "16", "17", "257"};
inline const char *const kFloats[] = {"f32", "bf16", "f16", "f64"};

} // namespace fsdpc::testing
