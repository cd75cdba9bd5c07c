// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Dimensions that torch's exporter derives from others, such as "2*T + 1".
#pragma once

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace fsdpc::frontend {

/// Returns the names in an expression of names, integers, + - * // / % **,
/// max(…), min(…), Mod(a, b) and parentheses. Returns an empty list if the text
/// is not such an expression, or only a name.
llvm::SmallVector<llvm::StringRef> namesInExpression(llvm::StringRef text);

/// Returns the value of an expression, in elements. Returns nullopt if the text
/// is not an expression, a name in it has no value in `dims`, a quotient of /
/// is not whole, or the result or a part of it does not fit 63 bits.
std::optional<int64_t>
evaluateDimension(llvm::StringRef text,
                  const std::map<std::string, int64_t> &dims);

} // namespace fsdpc::frontend
