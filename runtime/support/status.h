// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lets functions report that they failed. A Status is success or an error; a
// Result<T> is a value or an error. Both convert to true on success, and the
// compiler warns of a caller that ignores one.
//
// The names are those of std::expected, which g++ 12 does not have: `*result`
// and `result->` are the value, `error()` is the error, and each may be asked
// for only in its case. C++17, because CUDA files include this header.
#pragma once

#include "runtime/support/exit_code.h"

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace fsdpc {

/// A message for the person who runs the program: a lower-case fragment
/// that quotes the offending name and value and says what to do. Who makes an
/// error knows whose fault it is and says so by the function that makes it; the
/// code travels with the message to where the process ends.
class [[nodiscard]] Error {
public:
  std::string message;

  /// The exit code of a process that ends with this error.
  ExitCode code() const { return kind; }
  /// Returns the error of another process or thread, which prints its message.
  static Error toldElsewhere(ExitCode code) { return {code, ""}; }
  /// Returns an error of the same code with another message.
  Error reworded(std::string text) const { return {kind, std::move(text)}; }

private:
  Error(ExitCode kind, std::string message)
      : message(std::move(message)), kind(kind) {}
  friend Error inputError(std::string message);
  friend Error commandLineError(std::string message);
  friend Error runError(std::string message);
  friend Error machineError(std::string message);

  ExitCode kind;
};

/// A file, a value in one, a variable of the launcher or the machine does not
/// fit: the same start would fail again.
inline Error inputError(std::string message) {
  return {ExitCode::wrongInput, std::move(message)};
}
/// A flag is unknown, has a wrong value or lacks another flag.
inline Error commandLineError(std::string message) {
  return {ExitCode::wrongCommandLine, std::move(message)};
}
/// The training itself failed, or lacks room on a disk or in memory: another
/// start will most likely fail again.
inline Error runError(std::string message) {
  return {ExitCode::runFailed, std::move(message)};
}
/// Another rank, its machine or the link to it failed: another start may
/// succeed.
inline Error machineError(std::string message) {
  return {ExitCode::machineFailed, std::move(message)};
}

/// Success, or an error. Copies are cheap on success.
class [[nodiscard]] Status {
public:
  Status() = default; ///< success
  Status(Error error) : failure(std::move(error)) {}

  /// True on success, so that `if (!status)` reads as the error path.
  explicit operator bool() const { return !failure; }
  /// Only a Status that failed has an error.
  const Error &error() const { return *failure; }

private:
  std::optional<Error> failure;
};

/// A value of type T, or an error. It owns the value, which
/// `std::move(*result)` takes out. Both constructors are implicit, so that a
/// function returns either kind as it is.
template <class T> class [[nodiscard]] Result {
public:
  template <class U, class = std::enable_if_t<std::is_convertible_v<U &&, T>>>
  Result(U &&value) : content(std::in_place, std::forward<U>(value)) {}
  Result(Error error) : failure(std::move(error)) {}

  explicit operator bool() const { return content.has_value(); }
  /// Like std::optional: only a successful Result has a content.
  T &operator*() & { return *content; }
  const T &operator*() const & { return *content; }
  T &&operator*() && { return *std::move(content); }
  T *operator->() { return &*content; }
  const T *operator->() const { return &*content; }
  /// Only a Result that failed has an error.
  const Error &error() const { return *failure; }

private:
  std::optional<T> content;
  std::optional<Error> failure;
};

} // namespace fsdpc

// Evaluates a Status or Result. If it is an error, returns the error from the
// enclosing function.
#define FSDPC_TRY(expression)                                                  \
  do {                                                                         \
    if (const auto &fsdpcTried = (expression); !fsdpcTried)                    \
      return fsdpcTried.error();                                               \
  } while (false)
