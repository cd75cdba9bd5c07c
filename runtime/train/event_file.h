// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// --tensorboard: an event file that TensorBoard reads. Each run writes its own
// file. The first record tells TensorBoard to drop the records of earlier files
// from this run's first step on, because a resumed run computes those steps
// again.
//
// Each record is one write, so a killed run leaves the records of all completed
// steps.
#pragma once

#include "runtime/support/status.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace fsdpc::runtime {

/// A point of a curve: its tag and its value.
using Scalar = std::pair<std::string, double>;

/// Values of which TensorBoard shows the distribution; none is negative.
struct Histogram {
  std::string tag;
  std::vector<double> values;
};

/// The event file of rank 0. Without `prepare` the functions do nothing.
class EventFile {
public:
  EventFile() = default;
  EventFile(const EventFile &) = delete;
  ~EventFile();
  /// Makes the folder, and checks that files can be made in it. Leaves no file
  /// behind, since the run may not come to train.
  Status prepare(const std::string &folder);
  /// Makes the file of a run that begins at `firstStep`.
  Status begin(int64_t firstStep);
  /// Adds a point at `step` to the curve of each tag, and the histograms. After
  /// a failure the file ends with its last whole record, and further calls do
  /// nothing.
  Status add(int64_t step, const std::vector<Scalar> &scalars,
             const std::vector<Histogram> &histograms = {});
  /// Returns false if nothing will be written, so nothing need be computed.
  bool isOpen() const { return file >= 0; }

private:
  Status create();
  Status record(const std::string &event);
  std::string folder, path;
  int file = -1;
  uint64_t written = 0; ///< bytes of whole records
};

} // namespace fsdpc::runtime
