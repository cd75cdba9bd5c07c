// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names with a running number, by which equal blocks fold into one row: the
// number in `h.3.flat` is written relative to that of the row's unit `h.3`, as
// `h.{i}.flat`.
#pragma once

#include "runtime/support/concat.h"

#include <optional>
#include <string>
#include <string_view>

namespace fsdpc::schedule {

/// A name that is cut at one of its numbers, or has none.
struct NumberedName {
  std::string prefix, suffix;
  std::optional<int> number; ///< of at most six digits, without leading zeros
};

/// Cuts a name at its first number.
NumberedName splitName(std::string_view name);

/// Returns `name` with its number relative to `unit`'s if both have the same
/// prefix, as in "h.{i+1}.flat"; else as it is.
std::string relativeName(std::string_view name, const NumberedName &unit);

/// Returns the name that "h.{i+1}.flat" has where i is `number`. A name without
/// braces is returned as it is; nullopt if the braces hold anything else, or
/// the number would be negative.
std::optional<std::string> absoluteName(std::string_view name, int number);

/// The units of a row: one, or the range of a folded row "h.{1..10}".
struct UnitRange {
  std::string prefix, suffix; ///< of a range
  std::string single;         ///< or the only unit
  int first = 0, last = 0;    ///< of one unit: its number, or 0

  std::string unit(int number) const {
    return single.empty() ? concat(prefix, number, suffix) : single;
  }
};

/// Reads the unit of a row. Returns nullopt if it has braces that hold no
/// range.
std::optional<UnitRange> rangeOf(std::string_view unit);

/// Return the text without blanks at its ends.
std::string_view trim(std::string_view text);
/// Take the text up to the separator, or the first word, off the front.
std::string_view takeUntil(std::string_view &text, char separator);
std::string_view takeWord(std::string_view &text);
/// Returns the number that the whole text is, from 0 on.
std::optional<int> numberOf(std::string_view text);

} // namespace fsdpc::schedule
