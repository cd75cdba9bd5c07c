// Finds the nearest of several names by their edit distance, and makes text fit
// for a message. Formats bytes, counts and times as people read them, the same
// way wherever one is printed.
#include "runtime/core/spelling.h"

#include <algorithm>
#include <cstdio>

namespace fsdpc::runtime {
namespace {

// Levenshtein distance, one row at a time. row[j] is the distance of a's first
// i characters to b's first j; time is the product of both lengths.
size_t editDistance(const std::string &a, const std::string &b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t changed = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row[b.size()];
}

} // namespace

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

std::string nearest(const std::string &text,
                    const std::vector<std::string> &candidates) {
  std::string best;
  if (text.size() > 1000) // no slip; the time grows with its length
    return best;
  // Half of the text may differ, and two edits are always a slip. The first of
  // equally near candidates counts.
  size_t least = std::max<size_t>(2, text.size() / 2);
  for (const std::string &candidate : candidates) {
    size_t distance = editDistance(text, candidate);
    if (distance <= least && (best.empty() || distance < least)) {
      best = candidate;
      least = distance;
    }
  }
  return best;
}

std::string meant(const std::string &text,
                  const std::vector<std::string> &candidates) {
  std::string near = nearest(text, candidates);
  return near.empty() ? "" : "; did you mean '" + near + "'?";
}

std::string listed(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
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
