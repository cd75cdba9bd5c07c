// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Measures what an update changes, for --histogram-every: per parameter the
// ratio of two norms, ‖change‖ / ‖value before‖. Ratios near 1 show that the
// rate is too high, ratios below 1e-5 that it is too low.
//
// The sums are exact (square_sum.h), so the ratios have the same bits for every
// number of ranks and threads.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/comm/communicator.h"
#include "runtime/numeric/square_sum.h"
#include "runtime/train/event_file.h"

#include <mutex>
#include <vector>

namespace fsdpc::runtime {

/// Sums of squares of a part of a parameter: its values before the update, and
/// their changes.
struct UpdateSums {
  SquareSum values, changes;
};

/// The sums of all parameters of one step.
class UpdateRatios {
public:
  /// Allocates all that a measured step needs. `manifest` must outlive it.
  explicit UpdateRatios(const Manifest &manifest);
  /// Begins a step.
  void clear();
  /// Adds a part of a member of a layout. May be called on several threads at
  /// once, in any order.
  void add(size_t layout, size_t member, const UpdateSums &part);
  /// Adds the parts of all ranks. Collective; needed before `histograms`.
  void sumOver(Communicator &ranks);
  /// Returns a histogram per unit with trainable parameters,
  /// "update_ratio/UNIT", with one value for each of them. A parameter that was
  /// zero has no ratio and is left out, and so is a unit without any.
  std::vector<Histogram> histograms() const;

private:
  const double *sumsOf(size_t layout, size_t member) const;
  const Manifest &manifest;
  std::vector<size_t> firstOf; ///< per layout: its first member in `parts`
  std::mutex adding;
  std::vector<UpdateSums> parts; ///< of this rank
  std::vector<double> written; ///< of all ranks, as SquareSum::write gives them
};

} // namespace fsdpc::runtime
