// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the nearest of several names by their edit distance.
#include "runtime/support/nearest.h"

#include <algorithm>

namespace fsdpc {
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

std::string nearest(const std::string &text,
                    const std::vector<std::string> &candidates) {
  std::string best;
  if (text.size() > 1000) // no slip; the time grows with its length
    return best;
  // A third of the text may differ, and two edits are always a slip. The first
  // of equally near candidates counts.
  size_t least = std::max<size_t>(2, text.size() / 3);
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

} // namespace fsdpc
