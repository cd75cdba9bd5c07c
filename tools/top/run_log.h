// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The log of a run (--log) as a reader follows it: each call of `update` reads
// the lines that are new since the last one.
#pragma once

#include "runtime/support/status.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace fsdpc::top {

/// A curve: values by step; those of evaluations by the steps done before. A
/// null in the log is NaN here.
using Curve = std::map<int64_t, double>;

/// Holds the curves of one file. The run may go on meanwhile: its last line may
/// be incomplete, and is then read by the next update.
class RunLog {
public:
  explicit RunLog(std::string path) : path(std::move(path)) {}
  /// Reads what was added. A log that was cut or replaced, as by a run that
  /// resumed, is read anew. Fails if it cannot be read or is not a log.
  Status update();

  const std::string &name() const { return path; }
  /// Returns an empty curve if the log has none of this key.
  const Curve &curve(const std::string &key) const;
  /// Returns the newest value of a curve, or NaN.
  double newest(const std::string &key) const;
  int64_t steps() const { return wanted; } ///< --steps
  /// Steps that are logged.
  int64_t done() const {
    const Curve &losses = curve("loss");
    return losses.empty() ? 0 : losses.rbegin()->first + 1;
  }
  int ranks() const { return ranksOfRun; }
  /// What the losses are means of ("step", "microbatch"); empty if the loss is
  /// no mean over targets.
  const std::string &lossMean() const { return mean; }
  double changed() const { return changedAt; } ///< seconds since the epoch
  /// "tokens_per_s" or "samples_per_s"; empty if the log has no times.
  std::string rateKey() const;

private:
  Status line(const std::string &text, int64_t number);
  void forgetFrom(int64_t first);
  void clear();
  std::string path, partial, mean;
  std::map<std::string, Curve> curves;
  uint64_t read = 0, inode = 0; ///< bytes read, and of which file
  int64_t lines = 0, wanted = 0;
  int ranksOfRun = 0;
  double changedAt = 0;
};

} // namespace fsdpc::top
