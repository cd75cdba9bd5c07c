// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/train/update_ratios.h"

#include <algorithm>
#include <cmath>

namespace fsdpc::runtime {

constexpr size_t digitsPerMember = 2 * normDigits; // of values, then of changes

UpdateRatios::UpdateRatios(const Manifest &manifest) : manifest(manifest) {
  size_t members = 0;
  for (const Layout &layout : manifest.layouts) {
    firstOf.push_back(members);
    members += layout.members.size();
  }
  parts.resize(members);
  written.resize(members * digitsPerMember);
}

void UpdateRatios::clear() {
  std::fill(parts.begin(), parts.end(), UpdateSums());
}

void UpdateRatios::add(size_t layout, size_t member, const UpdateSums &part) {
  std::lock_guard<std::mutex> lock(adding);
  UpdateSums &sums = parts[firstOf[layout] + member];
  sums.values.add(part.values);
  sums.changes.add(part.changes);
}

void UpdateRatios::sumOver(Communicator &ranks) {
  double *to = written.data();
  for (const UpdateSums &part : parts) {
    part.values.write(to);
    part.changes.write(to + normDigits);
    to += digitsPerMember;
  }
  ranks.allReduce(written.data(), int(written.size()));
}

const double *UpdateRatios::sumsOf(size_t layout, size_t member) const {
  return &written[(firstOf[layout] + member) * digitsPerMember];
}

std::vector<Histogram> UpdateRatios::histograms() const {
  std::vector<Histogram> histograms;
  for (size_t l = 0; l < manifest.layouts.size(); ++l) {
    const Layout &layout = manifest.layouts[l];
    if (!layout.trainable)
      continue;
    // A unit may have several layouts.
    std::string tag = "update_ratio/" + layout.unit;
    auto found = std::find_if(
        histograms.begin(), histograms.end(),
        [&](const Histogram &histogram) { return histogram.tag == tag; });
    if (found == histograms.end())
      found = histograms.insert(histograms.end(), Histogram{tag, {}});
    for (size_t m = 0; m < layout.members.size(); ++m) {
      const double *sums = sumsOf(l, m);
      int64_t failed;
      double values = sumOfSquares(sums, 1, failed);
      double changes = sumOfSquares(sums + normDigits, 1, failed);
      double ratio = std::sqrt(changes) / std::sqrt(values);
      if (std::isfinite(ratio))
        found->values.push_back(ratio);
    }
  }
  std::erase_if(histograms, [](const Histogram &histogram) {
    return histogram.values.empty();
  });
  return histograms;
}

} // namespace fsdpc::runtime
