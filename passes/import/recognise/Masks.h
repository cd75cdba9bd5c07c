// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The masks of one attention, taken apart and put together again.
#pragma once

#include "passes/import/recognise/Positions.h"

namespace fsdpc::passes::recognise {

/// Classifies constants as masks and remembers the answers: every layer has the
/// same masks, each as large as the layer's scores.
class MaskConstants {
public:
  enum class Kind { KeepsAll, Triangle, Other };
  /// Classifies a boolean mask. A triangle keeps, for the last query, all keys,
  /// and one key less for each query before it. Compares every element the
  /// first time, and looks up the answer later.
  Kind classify(mlir::DenseElementsAttr constant, bool negated);
  /// An additive mask in boolean form.
  struct Kept {
    mlir::DenseElementsAttr keys; ///< bool
    bool byNumbers = false;       ///< hides some keys by a finite number
  };
  /// Returns the keys that an additive mask keeps. `keys` is null if the mask
  /// holds numbers other than 0 and very negative ones.
  Kept keptBy(mlir::DenseElementsAttr constant);

private:
  /// The key is a constant and `negated`.
  llvm::DenseMap<std::pair<mlir::Attribute, unsigned>, Kind> kinds;
  llvm::DenseMap<mlir::Attribute, Kept> kept;
};

/// Says how masks that hide keys by a very negative finite number are read. In
/// a row that keeps a key, both readings give the same weights. In a row that
/// keeps none, the softmax weighs all keys alike, as each has the same number,
/// but a boolean mask gives zeros.
enum class FiniteMasks { Hide, Add };

/// Collects the masks of one attention. `scores` has the shape B×H×T×S or
/// B×T×S.
class Masks {
public:
  Masks(llvm::ArrayRef<int64_t> scores, MaskConstants &known,
        FiniteMasks reading)
      : known(&known), reading(reading), queries(scores.end()[-2]),
        keys(scores.back()), isRank3(scores.size() == 3) {}

  /// Adds an additive mask, which is multiplied by `factor`. Returns false if
  /// it cannot be expressed. `mask` broadcasts to the scores. On false the
  /// object is as it was.
  bool add(mlir::Value mask, double factor);
  /// Adds a boolean mask: keys are kept where it is true, or, if `negated`,
  /// where it is false, and the other keys have the score `number`. Returns
  /// false if the number does not hide them.
  bool keep(mlir::Value keep, bool negated, double number);
  /// Returns false if a row may keep no key although the program hides keys by
  /// finite numbers. The masks must then be read as FiniteMasks::Add.
  bool isExact() const;

  /// True if a lower triangle was among the masks.
  bool causal = false;
  /// Builds the mask of rank 4 that remains besides `causal`, or returns null.
  /// Boolean unless an additive mask remains. Its sizes are those of the scores
  /// or 1.
  mlir::Value build(Builder &b) const;

private:
  struct Condition {
    mlir::Value value;
    bool negated;
  };
  void keepParts(mlir::Value mask, bool isNegated);
  void keepBand(mlir::Value value, const Band &band, bool negated);
  void keepConstant(mlir::DenseElementsAttr constant, mlir::Value value,
                    bool negated);
  bool addConstant(mlir::DenseElementsAttr constant, mlir::Value mask);
  mlir::Value toRank4(Builder &b, mlir::Value value) const;

  MaskConstants *known; ///< outlives this object
  FiniteMasks reading;
  int64_t queries, keys;
  bool isRank3;
  bool hidesByNumbers = false;
  /// Every query t keeps the key t + keys - queries, so no row is without keys.
  bool keepsOwnKeys = true;
  /// `build` combines these: boolean values of the program, boolean masks made
  /// from additive constants, and additive masks that could not be taken apart.
  llvm::SmallVector<Condition> conditions;
  llvm::SmallVector<mlir::DenseElementsAttr> constants; ///< bool
  llvm::SmallVector<mlir::Value> additive;
};

} // namespace fsdpc::passes::recognise
