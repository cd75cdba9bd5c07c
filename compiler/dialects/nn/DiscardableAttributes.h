// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The discardable attributes of a dialect, as a table that its verifier reads.
//
// Such attributes need no op definition, so MLIR accepts any name and value.
// Passes and the program's code generator would take a misspelt one as absent.
// Each dialect therefore lists its attributes and refuses all others.
#pragma once

#include "mlir/IR/Attributes.h"
#include "mlir/IR/Operation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace fsdpc::nn {

/// The ops or arguments that may carry an attribute. Descriptions complete the
/// sentence "belongs on ..." of the diagnostic.
struct AttributePlace {
  llvm::StringLiteral description; ///< "a module"
  bool (*contains)(mlir::Operation *);
};

/// The values that an attribute may have. Descriptions complete "is not ...".
struct AttributeForm {
  llvm::StringLiteral description; ///< "an i64 of 0 or more"
  bool (*matches)(mlir::Attribute);
};

/// A row of a dialect's table. Everything in it is static, so a table can be
/// constexpr.
struct DiscardableAttribute {
  llvm::StringLiteral name; ///< with the dialect's prefix
  AttributePlace place;
  AttributeForm form;
};

/// Emits an error at `op` if the table has no attribute of this name, or if its
/// row does not allow it on this op or with this value. `carrier` names what
/// carries the attribute.
mlir::LogicalResult
verifyDiscardable(mlir::Operation *op, mlir::NamedAttribute attribute,
                  llvm::ArrayRef<DiscardableAttribute> table);

/// The same for the arguments of a function. `table` lists attributes of
/// arguments; their places are not read.
mlir::LogicalResult
verifyArgumentAttribute(mlir::Operation *function,
                        mlir::NamedAttribute attribute,
                        llvm::ArrayRef<DiscardableAttribute> table);

/// An attribute that an op had once, and what takes its place.
struct FormerAttribute {
  llvm::StringLiteral op, name, instead;
};

/// Emits an error at the first op of a text from outside with an attribute that
/// neither its definition nor a dialect has: MLIR keeps such an attribute, and
/// every pass ignores it.
mlir::LogicalResult
verifyKnownAttributes(mlir::Operation *root,
                      llvm::ArrayRef<FormerAttribute> former = {});

/// Emits an error at the first discardable attribute of a function that a user
/// has written, of its ops, or of an argument unless `isRead` is true of the
/// argument's number and the name: those of the dialects say something about a
/// model, and of the function itself nothing is compiled.
mlir::LogicalResult
verifyUserFunction(mlir::FunctionOpInterface function,
                   llvm::function_ref<bool(unsigned, llvm::StringRef)> isRead);

/// Places and forms that several attributes share.
bool isModule(mlir::Operation *op);
bool isAnyOp(mlir::Operation *op);
bool isUnit(mlir::Attribute value);
bool isString(mlir::Attribute value);
bool isStringArray(mlir::Attribute value);
/// An i64 that is not negative.
bool isCount(mlir::Attribute value);
/// An f64 that is not negative.
bool isDuration(mlir::Attribute value);

} // namespace fsdpc::nn
