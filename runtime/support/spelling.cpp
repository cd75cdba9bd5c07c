// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes text fit for a message, and formats bytes, counts and times as people
// read them, the same way wherever one is printed.
#include "runtime/support/spelling.h"

#include <cstdio>

namespace fsdpc::runtime {

// Bytes from 128 on stay, so that UTF-8 remains readable.
std::string printable(const std::string &text) {
  constexpr char digits[] = "0123456789abcdef";
  std::string clean;
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (byte >= 32 && byte != 127)
      clean += c;
    else
      clean += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
  }
  return clean;
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
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
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
