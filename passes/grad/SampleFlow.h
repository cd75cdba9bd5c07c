// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows the samples of a microbatch through all values: masks, labels, counts
// of them, and losses. A value that combines samples differs between
// microbatches in a way that a mean over microbatches does not undo.
#pragma once

#include "mlir/IR/Block.h"
#include "mlir/IR/Operation.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

#include <unordered_map>

namespace fsdpc::passes {

using Uses = llvm::DenseSet<mlir::OpOperand *>;

/// How the elements of a value follow from the samples of a microbatch.
enum class Samples {
  None, ///< from no sample: the same in all microbatches of a step
  Rows, ///< each from one sample
  Sum,  ///< each is a sum of terms, each of one sample
  Mean, ///< each is such a sum over the number of its terms
  Mixed ///< from several samples in another way
};

/// The state of a value.
struct SampleState {
  Samples kind = Samples::None;
  /// A term that counts as 0.
  bool isZero = false;
  /// With Rows, element i along `axis` follows from sample (i / inner) % count.
  /// The axis is -1 where all elements are of one sample, `inner`. A count of 0
  /// says that a model has moved samples, so their places are not known.
  int64_t axis = -1, inner = 1, count = 1;
  /// The elements that a chain of sums has added up, and those of the sum that
  /// combined samples.
  int64_t terms = 1, ownTerms = 1;
  /// Where samples are combined, the first op that does.
  mlir::Operation *source = nullptr;

  bool combines() const {
    return kind != Samples::None && kind != Samples::Rows;
  }
  bool countsTerms(double number) const {
    return number > 1 &&
           (number == double(terms) || number == double(ownTerms));
  }
  /// Returns true if both are Rows and element i of each follows from the same
  /// sample, as far as is known.
  bool hasRows(const SampleState &other) const {
    if (kind != Samples::Rows || other.kind != Samples::Rows)
      return false;
    if (count == 0 || other.count == 0)
      return true;
    return count == other.count &&
           (count == 1 || (axis == other.axis && inner == other.inner));
  }
};

/// The states of all values of a flat function. They are computed once.
class SampleFlow {
public:
  /// The operands in `ignored` count as constants.
  explicit SampleFlow(mlir::Block &body, const Uses &ignored = {});

  /// Returns true if the value depends on inputs with samples. A scalar input
  /// has one value per step.
  bool readsInputs(mlir::Value value) const { return inputs.contains(value); }
  /// Returns true if the value depends on parameters, buffers or random
  /// numbers.
  bool readsOthers(mlir::Value value) const { return others.contains(value); }
  SampleState of(mlir::Value value) const { return states.lookup(value); }
  /// Returns true if the value reads inputs alone and combines samples.
  bool combines(mlir::Value value) const {
    return !readsOthers(value) && of(value).combines();
  }
  /// Returns the first value that is computed in the same way from the same
  /// values.
  mlir::Value firstOf(mlir::Value value) const {
    mlir::Value first = leaders.lookup(value);
    return first ? first : value;
  }

private:
  void visit(mlir::Operation &op, const Uses &ignored);
  void findLeader(mlir::Operation &op);

  llvm::DenseSet<mlir::Value> inputs, others;
  llvm::DenseMap<mlir::Value, SampleState> states;
  llvm::DenseMap<mlir::Value, mlir::Value> leaders;
  std::unordered_map<size_t, llvm::SmallVector<mlir::Operation *, 1>> byHash;
};

} // namespace fsdpc::passes
