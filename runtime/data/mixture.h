// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses the part of a mixture that each sample of a run comes from (--mix),
// or the bucket of each step (samples.h). The parts are dealt out evenly: of
// the first n samples, a part of weight w has n*w, off by less than one for
// each part before it. So every step of --mix has its share, and not only the
// run as a whole.
//
// It is a function of the number alone. Nothing is stored, nothing depends on
// the number of ranks, and a resumed run goes on where the other one stopped.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace fsdpc::runtime {

class Mixture {
public:
  struct Drawn {
    size_t part;
    int64_t index; ///< how many samples of the part come before it
  };

  Mixture() = default;
  /// Weights are positive, their sum is finite; only their ratios count.
  explicit Mixture(const std::vector<double> &weights) {
    double sum = 0;
    for (double weight : weights)
      sum += weight;
    // A power of ten, so that weights such as 0.7 and 0.3 are whole numbers.
    for (double weight : weights)
      shares.push_back(uint64_t(std::fmax(1, std::round(weight / sum * 1e12))));
  }

  /// Splits one part after the other off the rest. The part gets floor(p *
  /// share / total) of the first p samples of the rest, in whole numbers, so
  /// nothing is rounded however long the run is.
  Drawn at(int64_t number) const {
    using Wide = unsigned __int128;
    uint64_t position = uint64_t(number), total = 0;
    for (uint64_t share : shares)
      total += share;
    for (size_t part = 0; part + 1 < shares.size(); ++part) {
      auto before = uint64_t(Wide(position) * shares[part] / total);
      auto after = uint64_t(Wide(position + 1) * shares[part] / total);
      if (after > before)
        return {part, int64_t(before)};
      position -= before;
      total -= shares[part];
    }
    return {shares.size() - 1, int64_t(position)};
  }

  bool isOn() const { return shares.size() > 1; }

private:
  std::vector<uint64_t> shares;
};

} // namespace fsdpc::runtime
