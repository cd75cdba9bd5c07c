// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Expressions over the names of parameters, modules and units, for the flags
// --frozen, --trainable, --no-decay, --unit-scope and others, where all matches
// count, and for --group and --strategy-of, where the first match counts.
// RE2 is the engine: it understands what Python users write (\d, \w, \b,
// (?:...)), and its time is linear in the name whatever the expression.
#pragma once

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

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
  /// RE2 has no copies; sharing keeps a pattern copyable. Matching is
  /// thread-safe.
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

/// The expressions of a repeatable flag; the first that matches a name counts.
/// They may be regular expressions (--group) or globs (--strategy-of).
class FirstMatch {
public:
  /// A function and not a NamePattern, because globs match in another way.
  using Matcher = std::function<bool(llvm::StringRef)>;

  explicit FirstMatch(llvm::StringRef flag) : flag(flag.str()) {}
  /// Adds an expression. Errors show `value`, what the user gave to the flag.
  void add(llvm::StringRef text, std::string value, Matcher matches);
  /// Returns the number of the first expression that matches one of the names
  /// that a thing has, or nullopt if there is none.
  std::optional<size_t> find(llvm::ArrayRef<llvm::StringRef> names);
  /// Fails with an error at `loc` if an expression was first for no name: it
  /// matches none, and then the error lists the nearest of `names`, or only
  /// such as earlier ones match too.
  llvm::LogicalResult checkUsed(mlir::Location loc,
                                llvm::ArrayRef<llvm::StringRef> names,
                                llvm::StringRef what) const;

private:
  struct Entry {
    std::string text, value;
    Matcher matches;
    bool isFirst = false;
    std::optional<size_t> hiddenBy; ///< an earlier one that matches the same
  };
  std::string flag;
  std::vector<Entry> entries;
};

/// "'a', 'b' and 3 more": the names nearest to `text` first.
std::string listNearest(llvm::StringRef text,
                        llvm::ArrayRef<llvm::StringRef> names);

} // namespace fsdpc::fsdp
