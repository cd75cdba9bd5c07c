// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of options: one row for each field of CompileOptions.
//
// The command line with its help, the module's attribute and the attribute's
// verifier all come from these rows. How a value is parsed and printed follows
// from the type of the field (OptionTypes.h).
#pragma once

#include "compiler/options/Options.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "llvm/ADT/ArrayRef.h"

#include <limits>

namespace fsdpc::fsdp {

/// The headings of the help, in this order.
enum class OptionGroup { Model, Sharding, Training, Schedule, Output };

/// The legal numbers of an option: low <= value < below.
struct NumberRange {
  double low = 0;
  double below = std::numeric_limits<double>::infinity();
};

/// Says that an option has an effect only if another one has certain values.
struct OptionCondition {
  llvm::StringLiteral option; ///< name of the other option; empty: no condition
  llvm::StringLiteral values; ///< separated by '|'; empty: see neededValues()
  /// If the other option is the strategy: returns true for those that count.
  bool (*strategies)(const StrategyInfo &) = nullptr;
};

/// A row of the table. It is immutable and lives as long as the program, so
/// passes and CompileOptions::given hold pointers to rows.
struct OptionInfo {
  llvm::StringLiteral name; ///< without the dashes; also the attribute's key
  OptionGroup group;
  llvm::StringLiteral placeholder; ///< what the help shows for the value
  llvm::StringLiteral help;
  NumberRange range;
  OptionCondition condition;

  /// These follow from the type of the field.
  bool isFlag;    ///< takes no value on the command line
  bool mayRepeat; ///< each use adds a value
  /// Returns the legal values as "a|b|c", or an empty string if the type has
  /// no list of them.
  std::string (*legalValues)();
  /// Sets the field from the text of one use of the flag. Returns an empty
  /// string, or how the text is wrong, such as "is not a number".
  std::string (*parse)(const OptionInfo &, llvm::StringRef text,
                       CompileOptions &);
  /// Returns the field's value as it is written on the command line; empty if
  /// it is a list or has no value.
  std::string (*print)(const CompileOptions &);
  /// Sets the field from an attribute. Returns an empty string or the fault.
  /// Checks everything that `parse` checks, because dumps are edited by hand.
  std::string (*read)(const OptionInfo &, mlir::Attribute, CompileOptions &);
  /// Returns the field's value as an attribute; null if it has no value.
  mlir::Attribute (*write)(const CompileOptions &, mlir::MLIRContext *);
  /// Sets the field as it is in other options.
  void (*copy)(const CompileOptions &from, CompileOptions &to);
};

/// Returns every option, in the order of the help.
llvm::ArrayRef<OptionInfo> allOptions();

/// Returns the option with this name, or null.
const OptionInfo *findOption(llvm::StringRef name);

/// Returns the values of the other option with which this one has an effect;
/// none if it always has. A hyperparameter's are the optimizers that take it,
/// and those of a condition on strategies the ones that meet it.
llvm::SmallVector<llvm::StringRef> neededValues(const OptionInfo &option);

/// Returns true if optimizers take the option: each says which (Optimizers.h).
bool isHyperparameter(const OptionInfo &option);

/// Returns "; did you mean 'x'?" with the one of `names` that is nearest to a
/// misspelt name, or nothing if none is near.
std::string meant(llvm::StringRef name, llvm::ArrayRef<llvm::StringRef> names);

/// Sets an option from the text of one use of its flag ("true" for a flag
/// without value). Returns an empty string, or an error that names the flag and
/// the value.
std::string setOption(const OptionInfo &option, llvm::StringRef text,
                      CompileOptions &options);

/// Sets options from the attribute `fsdp.options`. Returns an empty string, or
/// an error that names the key and its value.
std::string readOptions(mlir::DictionaryAttr attribute,
                        CompileOptions &options);

/// Returns the attribute `fsdp.options`, with the options that were given.
mlir::DictionaryAttr writeOptions(const CompileOptions &options,
                                  mlir::MLIRContext *context);

/// Checks the rules of torch.optim that concern several hyperparameters, or one
/// that has a limit of its own. Returns an empty string or the error.
std::string checkHyperparameters(const CompileOptions &options);

/// Checks the rules that concern several options: an option that the others
/// leave without effect is an error. Returns an empty string or the error.
std::string checkOptions(const CompileOptions &options);

} // namespace fsdpc::fsdp
