// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Emits philox4x32-10 (Salmon et al., Parallel Random Numbers: As Easy as 1, 2,
// 3, 2011), a generator that is a function of a counter and a key, on scalars
// or on vectors of counters. A call yields four words.
#pragma once

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"

#include <array>

namespace fsdpc::codegen::kernels {

class Philox {
public:
  using Words = std::array<mlir::Value, 4>;

  /// `type` is i32, or a vector of as many i32 as there are calls at once.
  Philox(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type type)
      : builder(builder), loc(loc), type(type) {}

  /// Emits the ten rounds. The counter has four words and the key two.
  Words run(Words counter, mlir::Value keyLow, mlir::Value keyHigh);
  /// Returns the words of `width` elements in order, element i being word i % 4
  /// of call i / 4.
  mlir::Value interleave(const Words &words, int64_t calls, int64_t width);
  /// Returns the word of number `which`, from 0 to 3, of each call.
  mlir::Value pick(const Words &words, mlir::Value which);

  /// Returns a constant of an integer type, or of a vector of it.
  mlir::Value constant(mlir::Type like, uint64_t value);

private:
  mlir::Value exclusiveOr(mlir::Value a, mlir::Value b);
  mlir::Value add(mlir::Value a, uint32_t b);
  /// Returns the low and the high half of the 64-bit product.
  std::pair<mlir::Value, mlir::Value> multiply(mlir::Value a, uint32_t b);

  mlir::OpBuilder &builder;
  mlir::Location loc;
  mlir::Type type;
};

} // namespace fsdpc::codegen::kernels
