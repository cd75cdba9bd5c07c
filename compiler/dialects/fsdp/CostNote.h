// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The estimates of an op as texts: "1.568 us, 15680 bytes, 0 flops" for
// `fsdp.cost_us`, `fsdp.bytes` and `fsdp.flops`, and "0.5 us" for
// `fsdp.exposed_us`. Short dumps have them.
#pragma once

#include "mlir/IR/Operation.h"

#include <optional>
#include <string>

namespace fsdpc::fsdp {

/// The attributes that take the place of the three, and of the one.
constexpr llvm::StringLiteral kCostNoteAttr = "fsdp.cost";
constexpr llvm::StringLiteral kExposedNoteAttr = "fsdp.exposed";

struct CostNote {
  double us = 0;
  int64_t bytes = 0;
  std::optional<int64_t> flops; ///< none of a collective

  /// Returns nullopt unless the text is one that print() returns.
  static std::optional<CostNote> parse(llvm::StringRef text);
  /// Prints all digits that the numbers need to be read back.
  std::string print() const;
};

/// Prints a time as "0.5 us", with all digits that reading needs.
std::string printTime(double us);
/// Returns nullopt unless the text is one that printTime returns.
std::optional<double> parseTime(llvm::StringRef text);

/// Turns the estimates of an op into notes: the cost if it has time and bytes,
/// and the exposed time.
void foldCost(mlir::Operation *op);
/// Undoes foldCost on an op whose notes the dialect has verified.
void unfoldCost(mlir::Operation *op);

} // namespace fsdpc::fsdp
