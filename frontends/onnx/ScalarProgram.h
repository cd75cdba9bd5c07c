// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scalar program of an optimizer, as --optimizer=FILE.mlir has it, from an
// update of tensors in nn ops. The update must be pointwise: an element of a
// new value depends on the same element of the old ones, and on numbers.
#pragma once

#include "frontends/onnx/Emitter.h"

#include "llvm/ADT/DenseSet.h"

#include <string>

namespace fsdpc::frontend {

/// An argument of the block that holds the update's ops.
struct UpdateArgument {
  enum Kind { parameter, gradient, state, number } kind;
  std::string tensor;         ///< its name in the model
  mlir::Value value;          ///< the block's argument
  mlir::Value updated;        ///< its new value; null if it keeps the old one
  std::string torchName = {}; ///< of a state, or empty
  double initial = 0;         ///< of each element of a state, or of a number
  bool isUneven = false;      ///< its elements start with several values
  /// These are for numbers. One that begins with the learning rate has no value
  /// of its own if it is fed. Each step multiplies the number by `change`, or
  /// adds it.
  bool isRate = false, isFed = false, multiplies = false;
  double change = 0;
};

struct UpdateArguments {
  std::vector<UpdateArgument> list; ///< in the order of the block's arguments
  /// Values that depend on a parameter, a gradient or a state. All others are
  /// numbers.
  llvm::DenseSet<mlir::Value> elements;

  UpdateArgument &of(mlir::Value value) {
    return list[llvm::cast<mlir::BlockArgument>(value).getArgNumber()];
  }
};

/// The values on which the new value of one parameter depends.
struct UpdateSlice {
  UpdateArgument *parameter;
  /// In the order in which the ops lead to them, so that parameters with the
  /// same update have them in the same order.
  llvm::SmallVector<UpdateArgument *> states;
  llvm::SmallVector<UpdateArgument *> others; ///< all further arguments
  llvm::SmallVector<mlir::Operation *> ops;   ///< in the order of the block
};

/// Finds the ops and arguments that the new value of a parameter needs, and
/// those that its states need.
UpdateSlice sliceOf(UpdateArgument &parameter, UpdateArguments &arguments);

/// Returns the text of the program. `stateNames` has a name per state. Fails
/// after an error at an op that is not pointwise.
///
/// Numbers are computed in f64, and elements in f32: the corrections of Adam's
/// averages are differences of numbers close to one.
mlir::FailureOr<std::string>
printScalarProgram(const UpdateSlice &slice, UpdateArguments &arguments,
                   llvm::ArrayRef<std::string> stateNames);

} // namespace fsdpc::frontend
