// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The budgets of an import. A model file may be hostile: a few kilobytes of
// nested functions ask for 2^40 nodes, and a handful of nodes for terabytes of
// constants. All limits are here, so that an import ends within seconds and
// about 1 GiB beyond the bytes of the file itself.
//
// Folding beyond a budget does not happen: the op stays and is computed at run
// time. Everything else beyond a budget is refused by the budget's name.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"

#include <array>
#include <cstdint>
#include <string>

namespace fsdpc::frontend {

enum class Cost {
  /// Memory of the parsed file, without the bytes of strings and raw tensors,
  /// which the file itself bounds. An empty node takes 2 bytes in a file and
  /// 250
  /// in memory. A node of torch's exporter takes some 2 KiB.
  parsedBytes,
  /// Nodes after functions and branches are inlined. 24 layers of a transformer
  /// are some 2,000; the compiler is tested up to 100,000.
  nodes,
  /// Bytes of nodes and names that inlining copies: a function with a large
  /// attribute or a long name may be called many times.
  inlinedBytes,
  /// Nested functions and branches. torch nests modules at most some 10 deep.
  /// Each level takes about 1 KiB of the stack.
  depth,
  /// Ops that nodes become, and their operands: one SplitToSequence makes up to
  /// 65,536 ops.
  ops,
  /// Elements of constant integers that nodes read as shapes, axes and indices,
  /// once per node.
  indices,
  /// Steps of the interpreter that folds, at some 5 to 10 ns each: about one
  /// per
  /// element of an elementwise op and ten per element that is moved or summed.
  /// The masks that torch writes out for 4,096 tokens take some 2^27.
  foldedSteps,
  /// Bytes of the constants that folding makes. MLIR frees none of them before
  /// the compile ends.
  foldedBytes,
  /// Bytes of the constants that nodes read from the file. Parameters do not
  /// count, since their values stay in the file.
  constantBytes,
};
constexpr int kCosts = int(Cost::constantBytes) + 1;

/// `name` is what an error calls the budget, `unit` what the number counts.
struct BudgetInfo {
  llvm::StringRef name, unit;
  int64_t limit;
};
/// The budgets, in the order of Cost.
constexpr std::array<BudgetInfo, kCosts> kBudgets = {{
    {"parsed-bytes", "bytes of parsed messages", 512 << 20},
    {"nodes", "nodes after functions are inlined", 1 << 18},
    {"inlined-bytes", "bytes of inlined nodes and their names", 64 << 20},
    {"depth", "nested functions and branches", 64},
    {"ops", "ops and operands", 1 << 21},
    {"indices", "elements of shapes, axes and indices", 1 << 25},
    {"folded-steps", "steps of folding", 1 << 28},
    {"folded-bytes", "bytes of folded constants", 256 << 20},
    {"constant-bytes", "bytes of constants", 256 << 20},
}};

/// The largest constant that folding makes.
constexpr int64_t kFoldedBytes = 64 << 20;
/// Narrow constants up to this size in bytes are folded, even if the result is
/// larger (StoredConstants.h).
constexpr int64_t kFoldedAnyway = 64 << 10;
/// The highest rank of a tensor, as in NumPy.
constexpr int64_t kHighestRank = 64;
/// An import stops after so many refused nodes.
constexpr size_t kMostRefusals = 1000;
/// Tensors and inputs that an error lists; further ones are counted.
constexpr size_t kMostRefusedTensors = 20;

/// Counts what an import has cost so far.
class Budgets {
public:
  static const BudgetInfo &info(Cost cost) { return kBudgets[int(cost)]; }
  int64_t used(Cost cost) const { return spent[int(cost)]; }

  /// Adds an amount. Returns false, and adds nothing, if the budget does not
  /// allow it.
  bool spend(Cost cost, int64_t amount) {
    if (amount > info(cost).limit - used(cost))
      return false;
    spent[int(cost)] += amount;
    return true;
  }
  /// Says that a budget is exceeded, as the end of an error message.
  static std::string exceeded(Cost cost) {
    return ("more than " + llvm::Twine(info(cost).limit) + " " +
            info(cost).unit + " (budget '" + info(cost).name + "')")
        .str();
  }

private:
  std::array<int64_t, kCosts> spent = {};
};

} // namespace fsdpc::frontend
