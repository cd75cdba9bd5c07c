// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The memory that an op of an rt function touches while its command runs, from
// the effects and ranges that it states in ODS. verify-rt orders these
// accesses; an op that leaves something unsaid is an error here.
#pragma once

#include "compiler/dialects/rt/RTDialect.h"

#include <string>

namespace fsdpc::passes {

/// Bytes [begin, end) of a memory. If `symbol` is null, all of that kind of
/// memory is meant, else only the symbol's. `begin` and `end` count within the
/// arena or within the symbol's memory. An access to all memory of a symbol has
/// the range of all bytes.
struct MemoryAccess {
  mlir::SideEffects::Resource *memory;
  mlir::SymbolRefAttr symbol;
  int64_t begin, end;
  bool write;

  bool isOfArena() const;
  /// As a diagnostic names it: "arena bytes [0, 64)", "gradients of 'a.flat'".
  std::string describe() const;
};

/// Returns true if the accesses may touch the same byte and one of them writes.
bool conflict(const MemoryAccess &a, const MemoryAccess &b);

/// Returns what the op touches, without the events that it records or waits
/// for. `gatherPadding` is the number of bytes that an all-gather may write
/// past its destination. Emits an error if the op does not state its effects or
/// ranges, does not say what it does with one of its pointers, takes a pointer
/// that no rt.pointer makes or that reaches less than the op touches, or writes
/// to memory that only the runtime writes.
mlir::FailureOr<mlir::SmallVector<MemoryAccess>>
accessesOf(mlir::Operation *op, const mlir::SymbolTable &symbols,
           int64_t gatherPadding);

} // namespace fsdpc::passes
