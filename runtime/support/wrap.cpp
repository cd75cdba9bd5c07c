// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds where lines break and where they go on.
#include "runtime/support/wrap.h"

#include <algorithm>

namespace fsdpc {
namespace {

constexpr auto kNone = std::string_view::npos;

// Returns the column under which a line goes on: that of the text behind two
// spaces or more, as in the rows of a table, or that of its first word.
size_t hangOf(std::string_view line, size_t columns) {
  size_t begin = std::min(line.find_first_not_of(' '), line.size());
  size_t gap = line.find("  ", begin);
  size_t text = gap == kNone ? kNone : line.find_first_not_of(' ', gap);
  // A column near the end would leave no room.
  return text == kNone || text > columns * 2 / 3 ? begin : text;
}

// Returns how many characters of a line to print: up to the last space within
// the columns, or up to the last bar or comma of a longer word.
size_t fitting(std::string_view line, size_t from, size_t columns) {
  size_t space = line.rfind(' ', columns);
  if (space != kNone && space > from)
    return space;
  size_t bar = line.find_last_of("|,", columns - 1);
  if (bar != kNone && bar > from)
    return bar + 1;
  return std::min(line.find(' ', columns), line.size());
}

void appendWrapped(std::string &out, std::string_view line, size_t columns) {
  size_t hang = hangOf(line, columns);
  std::string rest(line);
  while (rest.size() > columns) {
    size_t end = fitting(rest, hang, columns);
    if (end == rest.size())
      break;
    out.append(rest, 0, end);
    out += '\n';
    size_t next = rest.find_first_not_of(' ', end);
    rest = std::string(hang, ' ') + rest.substr(std::min(next, rest.size()));
  }
  out += rest;
}

} // namespace

std::string wrapLines(std::string_view text, size_t columns) {
  std::string out;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    appendWrapped(out, text.substr(0, end), columns);
    if (end < text.size())
      out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

} // namespace fsdpc
