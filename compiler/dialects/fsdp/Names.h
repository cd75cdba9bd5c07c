// Matching of parameter and module names by the regular expressions of
// repeatable flags, and the errors when one of them matches nothing.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/Regex.h"

namespace fsdpc::fsdp {

/// The expressions of one flag. They match anywhere in a name, as grep does;
/// \d, \w and \s are understood as in Python.
class NamePatterns {
public:
  /// Reads the flag from the module's options; an expression that does not
  /// compile is an error.
  static llvm::FailureOr<NamePatterns> read(mlir::ModuleOp module,
                                            llvm::StringRef flag);

  bool empty() const { return patterns.empty(); }
  /// True where any expression matches; all that match are marked as used.
  bool match(llvm::StringRef name);
  /// A parameter matches by its name or an alias.
  bool match(ParameterOp parameter);
  /// Fails, naming the nearest of `names`, where an expression was never used.
  llvm::LogicalResult checkUsed(mlir::ModuleOp module,
                                llvm::ArrayRef<llvm::StringRef> names,
                                llvm::StringRef what) const;

private:
  struct Pattern {
    std::string text;
    llvm::Regex regex;
    bool used = false;
  };
  std::string flag;
  std::vector<Pattern> patterns;
};

/// "'a', 'b' and 3 more": the names nearest to `text` first.
std::string listNearest(llvm::StringRef text,
                        llvm::ArrayRef<llvm::StringRef> names);

} // namespace fsdpc::fsdp
