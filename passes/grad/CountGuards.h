// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Knows the tests by which models guard a mean against having no target: of a
// count, `count > 0`, and of the mean itself, `isnan(mean)`.
#pragma once

#include "compiler/dialects/nn/ElementwiseOps.h"
#include "passes/grad/SampleFlow.h"

#include <optional>

namespace fsdpc::passes {

/// A test of inputs that tells whether the samples have any target.
struct Presence {
  mlir::Value counted; ///< as `countedBy` returns it
  bool ifAny;          ///< the test's result where there are some
  bool ofSign = false; ///< a count below 0 counts as none
};

/// Returns true for values of one element.
bool isSingle(mlir::Value value);

/// Returns true for ops whose result has the value of operand 0, if that is of
/// one element or repeated from one.
bool passesOn(mlir::Operation *op);

/// Returns the mask or the weights whose sum or maximum is `count`.
mlir::Value countedBy(mlir::Value count, const SampleFlow &flow);

/// Returns what a condition, or a number that it was converted to, tests.
std::optional<Presence> presenceOf(mlir::Value condition,
                                   const SampleFlow &flow);

/// Finds conditions that tell numbers from NaN or infinities, which no finite
/// factor but 0 changes.
class FiniteTests {
public:
  bool holds(mlir::Value condition);
  /// Returns the operands by which a condition that `holds` reads the numbers.
  Uses readsOf(mlir::Value condition) const;

private:
  std::optional<unsigned> ofOneSign(mlir::Operation *op) const;
  bool joins(mlir::Operation *op) const;

  llvm::DenseMap<mlir::Value, bool> known;
};

} // namespace fsdpc::passes
