// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See table_names.h. The writer, the reader and the comparison of tables share
// these functions, so that all three take a name, a range or a number for the
// same. Texts come from users, hence every number has a bound.

#include "compiler/schedule/table_names.h"

#include "runtime/support/concat.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace fsdpc::schedule {

static bool isDigit(char c) {
  return std::isdigit(static_cast<unsigned char>(c));
}

NumberedName splitName(std::string_view name) {
  auto begin = std::find_if(name.begin(), name.end(), isDigit);
  auto end = std::find_if_not(begin, name.end(), isDigit);
  bool plain = end - begin == 1 || (begin != end && *begin != '0');
  if (begin == end || end - begin > 6 || !plain)
    return {std::string(name), "", std::nullopt};
  return {std::string(name.begin(), begin), std::string(end, name.end()),
          std::stoi(std::string(begin, end))};
}

std::string relativeName(std::string_view name, const NumberedName &unit) {
  NumberedName parts = splitName(name);
  if (!parts.number || !unit.number || parts.prefix != unit.prefix)
    return std::string(name);
  int distance = *parts.number - *unit.number;
  std::string text = "{i";
  if (distance != 0)
    text += concat(distance > 0 ? "+" : "", distance);
  return parts.prefix + text + "}" + parts.suffix;
}

std::optional<std::string> absoluteName(std::string_view name, int number) {
  size_t open = name.find('{'), close = name.find('}');
  if (open == name.npos && close == name.npos)
    return std::string(name);
  if (open == name.npos || close == name.npos || close < open ||
      name.find_first_of("{}", close + 1) != name.npos || name[open + 1] != 'i')
    return std::nullopt;
  std::string_view inner = name.substr(open + 2, close - open - 2);
  int distance = 0;
  if (!inner.empty()) {
    bool plus = inner[0] == '+';
    if (!plus && inner[0] != '-')
      return std::nullopt;
    inner.remove_prefix(plus);
    auto read =
        std::from_chars(inner.data(), inner.data() + inner.size(), distance);
    if (read.ec != std::errc() || read.ptr != inner.data() + inner.size() ||
        std::abs(distance) > 1'000'000)
      return std::nullopt;
  }
  if (number + distance < 0)
    return std::nullopt;
  return concat(std::string(name.substr(0, open)), number + distance,
                std::string(name.substr(close + 1)));
}

std::optional<UnitRange> rangeOf(std::string_view unit) {
  size_t open = unit.find('{'), dots = unit.find(".."), close = unit.find('}');
  UnitRange range;
  if (open == unit.npos) {
    range.single = unit;
    range.first = range.last = splitName(unit).number.value_or(0);
    return range;
  }
  if (dots >= close || dots < open || close == unit.npos)
    return std::nullopt;
  auto first = numberOf(unit.substr(open + 1, dots - open - 1));
  auto last = numberOf(unit.substr(dots + 2, close - dots - 2));
  if (!first || !last)
    return std::nullopt;
  range.prefix = unit.substr(0, open);
  range.suffix = unit.substr(close + 1);
  range.first = *first;
  range.last = *last;
  return range;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
    text.remove_prefix(1);
  while (!text.empty() &&
         (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
    text.remove_suffix(1);
  return text;
}

std::string_view takeUntil(std::string_view &text, char separator) {
  size_t end = std::min(text.find(separator), text.size());
  std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return trim(part);
}

std::string_view takeWord(std::string_view &text) {
  text = trim(text);
  return takeUntil(text, ' ');
}

std::optional<int> numberOf(std::string_view text) {
  int number = 0;
  auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size() ||
      number < 0)
    return std::nullopt;
  return number;
}

} // namespace fsdpc::schedule
