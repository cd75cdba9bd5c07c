// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes text fit for a message, and formats bytes, counts and times as people
// read them, the same way wherever one is printed. Names come from models,
// checkpoints and peers, so each character is looked at.
#include "runtime/support/spelling.h"

#include "runtime/support/concat.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace fsdpc::runtime {

// By the table of Unicode (3-7 in its chapter 3): the second byte excludes long
// forms, surrogates and what lies beyond the last character.
size_t utf8Length(std::string_view text) {
  auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  unsigned first = byte(0), low = 0x80, high = 0xbf;
  if (first < 0x80)
    return text.empty() ? 0 : 1;
  size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (first < 0xc2 || first > 0xf4)
    return 0;
  if (first == 0xe0)
    low = 0xa0;
  else if (first == 0xed)
    high = 0x9f;
  else if (first == 0xf0)
    low = 0x90;
  else if (first == 0xf4)
    high = 0x8f;
  for (size_t i = 1; i < length; ++i, low = 0x80, high = 0xbf)
    if (byte(i) < low || byte(i) > high)
      return 0;
  return length;
}

bool isUtf8(std::string_view text) {
  while (size_t length = utf8Length(text))
    text.remove_prefix(length);
  return text.empty();
}

// Of a valid character.
static uint32_t codePoint(std::string_view bytes) {
  auto first = static_cast<unsigned char>(bytes[0]);
  if (bytes.size() == 1)
    return first;
  uint32_t code = first & (0xffu >> (bytes.size() + 1));
  for (char c : bytes.substr(1))
    code = code << 6 | (static_cast<unsigned char>(c) & 0x3f);
  return code;
}

// C0 and C1 controls, line and paragraph ends, and characters with which two
// names look alike as they cannot be seen: Unicode's
// Default_Ignorable_Code_Point (marks of direction too), interlinear
// annotations and the empty braille cell.
static bool isCommand(uint32_t code) {
  struct Range {
    uint32_t first, last;
  };
  constexpr Range ranges[] = {
      {0, 0x1f},          {0x7f, 0x9f},       {0xad, 0xad},
      {0x34f, 0x34f},     {0x61c, 0x61c},     {0x115f, 0x1160},
      {0x17b4, 0x17b5},   {0x180b, 0x180f},   {0x200b, 0x200f},
      {0x2028, 0x202e},   {0x2060, 0x206f},   {0x2800, 0x2800},
      {0x3164, 0x3164},   {0xfe00, 0xfe0f},   {0xfeff, 0xfeff},
      {0xffa0, 0xffa0},   {0xfff0, 0xfffb},   {0x1bca0, 0x1bca3},
      {0x1d173, 0x1d17a}, {0xe0000, 0xe0fff},
  };
  return std::any_of(std::begin(ranges), std::end(ranges), [&](Range range) {
    return range.first <= code && code <= range.last;
  });
}

static std::string clean(std::string_view text, std::string_view kept) {
  constexpr char digits[] = "0123456789abcdef";
  std::string result;
  while (!text.empty()) {
    size_t length = utf8Length(text);
    std::string_view bytes = text.substr(0, length ? length : 1);
    text.remove_prefix(bytes.size());
    if (kept.find(bytes[0]) != kept.npos ||
        (length && !isCommand(codePoint(bytes))))
      result += bytes;
    else
      for (char c : bytes) {
        auto byte = static_cast<unsigned char>(c);
        result += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
      }
  }
  return result;
}

// Returns a valid text, without its middle if it has more bytes than `most`.
static std::string shortened(std::string_view text, size_t most) {
  if (text.size() <= most)
    return std::string(text);
  auto isInside = [&](size_t i) { return (text[i] & 0xc0) == 0x80; };
  size_t head = most / 2, tail = text.size() - most / 4;
  while (isInside(head))
    --head;
  while (tail < text.size() && isInside(tail))
    ++tail;
  return concat(text.substr(0, head), " [... ", tail - head, " bytes ...] ",
                text.substr(tail));
}

// A word is a name or a path: one of a megabyte would bury the message. Paths
// stay whole, so that they can be copied.
static std::string withShortWords(std::string_view text) {
  constexpr size_t longestWord = 4096; // PATH_MAX
  std::string result;
  while (!text.empty()) {
    size_t end = text.find_first_of(" \t\n");
    result += shortened(text.substr(0, end), longestWord);
    text.remove_prefix(std::min(end, text.size()));
    size_t next = std::min(text.find_first_not_of(" \t\n"), text.size());
    result += text.substr(0, next);
    text.remove_prefix(next);
  }
  return result;
}

// A name may have blanks, so a line is shortened too.
std::string printable(std::string_view text) {
  constexpr size_t longestLine = 16000;
  return shortened(withShortWords(clean(text, "")), longestLine);
}

std::string printableLines(std::string_view text) {
  return withShortWords(clean(text, "\n\t"));
}

std::string listed(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

std::string shapeText(const std::vector<int64_t> &shape) {
  std::string text = "[";
  for (int64_t extent : shape)
    text += concat(text.size() > 1 ? ", " : "", extent);
  return text + "]";
}

// In powers of 1024, one decimal above bytes.
std::string bytesText(int64_t bytes) {
  const char *units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  int unit = 0;
  for (; value >= 1024 && unit < 4; ++unit)
    value /= 1024;
  char text[48];
  std::snprintf(text, sizeof text, unit ? "%.1f %s" : "%.0f %s", value,
                units[unit]);
  return text;
}

// 999.5 and more would round to four digits, so it takes the next unit.
std::string countText(double number) {
  const char *units[] = {"", "k", "M", "G", "T"};
  size_t unit = 0;
  for (; number >= 999.5 && unit < 4; ++unit)
    number /= 1000;
  char text[48];
  std::snprintf(text, sizeof text, "%.3g%s", number, units[unit]);
  return text;
}

// Rounded to whole seconds first, so that 59.7 s is "1m00s" and not "60s".
std::string durationText(double seconds) {
  long whole = long(seconds + 0.5);
  char text[48];
  if (whole >= 3600)
    std::snprintf(text, sizeof text, "%ldh%02ldm", whole / 3600,
                  whole % 3600 / 60);
  else if (whole >= 60)
    std::snprintf(text, sizeof text, "%ldm%02lds", whole / 60, whole % 60);
  else
    std::snprintf(text, sizeof text, "%lds", whole);
  return text;
}

} // namespace fsdpc::runtime
