// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The folder of --best: the parameters of the lowest eval_loss, and best.json,
// which names their file. best.json is replaced after the new file is whole and
// before the old one goes, so the folder always holds what it names.
#pragma once

#include "runtime/support/status.h"

#include <cstdint>
#include <limits>
#include <string>

namespace fsdpc::runtime {

/// Call open once; then, for each evaluation that is better, save to
/// pathOf(step) and publish.
class BestFolder {
public:
  BestFolder() = default;
  BestFolder(const BestFolder &) = delete;
  /// Removes a folder that `open` has made if it is still empty: a run that is
  /// refused leaves nothing.
  ~BestFolder();

  /// Makes the folder if it does not exist. If the run resumes, the best of
  /// before counts on; otherwise a folder that holds one is refused.
  Status open(const std::string &folder, bool resumes);
  /// The lowest loss so far, infinite if there is none.
  double loss() const { return lowest; }

  /// Returns the path for the parameters of a step.
  std::string pathOf(int64_t step) const;
  /// Makes the file of `step` the best, and removes the one before it.
  Status publish(int64_t step, double loss);

private:
  std::string folder, file; ///< `file`: the name of the best, or empty
  bool made = false;
  double lowest = std::numeric_limits<double>::infinity();
};

} // namespace fsdpc::runtime
