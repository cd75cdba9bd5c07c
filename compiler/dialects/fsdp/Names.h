// Regular expressions over the names of parameters and modules, for the flags
// --frozen, --trainable, --no-decay and --unit-scope. RE2 is the engine: it
// understands what Python users write (\d, \w, \b, (?:...)), and its time is
// linear in the name whatever the expression.
#pragma once

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "mlir/IR/BuiltinOps.h"

#include <memory>

namespace re2 {
class RE2;
}

namespace fsdpc::fsdp {

/// A compiled expression. It matches anywhere in a name, as Python's re.search
/// does.
class NamePattern {
public:
  /// Returns nullopt and writes RE2's message to `error` if `text` is not a
  /// regular expression.
  static std::optional<NamePattern> compile(llvm::StringRef text,
                                            std::string &error);
  bool match(llvm::StringRef name) const;

private:
  std::shared_ptr<const re2::RE2> regex;
};

/// The expressions of one repeatable flag.
class NamePatterns {
public:
  NamePatterns() = default;
  /// Fails with an error at `loc` if an expression does not compile.
  static llvm::FailureOr<NamePatterns>
  compile(mlir::Location loc, llvm::StringRef flag,
          llvm::ArrayRef<std::string> texts);

  bool empty() const { return patterns.empty(); }
  /// Returns true if any expression matches; marks all that match as used.
  bool match(llvm::StringRef name);
  /// A parameter matches by its name or by an alias.
  bool match(ParameterOp parameter);
  /// Fails with an error at `loc` that lists the nearest of `names` if an
  /// expression was never used.
  llvm::LogicalResult checkUsed(mlir::Location loc,
                                llvm::ArrayRef<llvm::StringRef> names,
                                llvm::StringRef what) const;

private:
  struct Entry {
    std::string text;
    NamePattern pattern;
    bool used = false;
  };
  std::string flag;
  std::vector<Entry> patterns;
};

/// "'a', 'b' and 3 more": the names nearest to `text` first.
std::string listNearest(llvm::StringRef text,
                        llvm::ArrayRef<llvm::StringRef> names);

} // namespace fsdpc::fsdp
