// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Helpers of the tests of numbers at the edges: errors in ulp, and kernels with
// their derivatives, compiled as host loops and as grids. A result below 2e-38,
// next to the smallest normal number, may be 0.
#pragma once

#include "tests/compiler/codegen/kernels/kernel_harness.h"

#include "compiler/dialects/nn/Build.h"

#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace fsdpc::testing {

using Real = long double;
inline Real square(Real x) { return x * x; }

/// Limits in ulp of f32 and of bf16, for the value and the derivative.
struct Limits {
  double f32, bf16, slopeF32, slopeBf16;
};

/// Returns the error in ulp of a format with `digits` binary digits: infinite
/// where a number should be none or the other way. Errors of values smaller
/// than `scale` are counted in ulp of that. `slack` is for products of which
/// one factor over- or underflows before the result does.
double errorOf(double actual, Real expected, int digits, double scale,
               double slack = 1);

struct Worst {
  double error = 0, at = 0, got = 0;
  void take(double e, double x, double value) {
    if (!(e <= error)) {
      error = e;
      at = x;
      got = value;
    }
  }
};

/// The result of a function's kernel for `x`.
struct Computed {
  size_t number; ///< of the function in its table
  bool isBf16;
  nn::ReferenceTensor x, y, dx; ///< dx is the derivative of y
};

/// The parameter is the number of threads per block of a grid, or 0 for loops.
class EdgesTest : public ::testing::TestWithParam<int> {
protected:
  EdgesTest() { prepareContext(context); }

  /// Runs the functions of `text`, whose names are the element type and the
  /// number of the function, and their derivatives on `all`. A function may
  /// return its derivative itself. Returns nothing after a failure.
  std::vector<Computed> compute(const std::string &text,
                                const std::vector<double> &all);

  /// Prints a line of the table and holds the errors under their limits.
  /// `place` says what Worst::at is: " at " or " of row ".
  static void report(const char *name, bool isBf16, const Limits &limits,
                     const char *place, const Worst &value,
                     const Worst &derivative);

  mlir::MLIRContext context;
};

/// Returns the text with each `name` replaced.
std::string replaced(std::string text, llvm::StringRef name,
                     const std::string &by);

} // namespace fsdpc::testing
