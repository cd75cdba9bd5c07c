// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// --timing: where the time of a compile goes.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace fsdpc::driver {

/// How much of its time a compile shows.
enum class TimingDetail {
  None,
  Parts,  ///< a table at the end
  Passes, ///< also each pass when it ends
};

/// Measures a compile by parts: the start of the process, the import, each
/// phase of passes, and the parts of code generation. The destructor prints the
/// table to stderr, in elapsed seconds and in processor seconds of all threads,
/// which a busy machine does not change.
class Timing {
public:
  explicit Timing(TimingDetail detail);
  Timing(const Timing &) = delete;
  ~Timing();

  /// Ends what runs, and begins the next thing, a pass of `part` or the whole
  /// part. A part may be continued; nothing begins for "". With
  /// TimingDetail::Passes the end prints "timing: NAME S s", in processor
  /// seconds.
  void begin(llvm::StringRef part, llvm::StringRef pass = "");

private:
  struct Time {
    double elapsed = 0, processor = 0; ///< seconds
  };
  struct Row {
    std::string name;
    Time time;
  };
  static Time now();
  Row &rowOf(llvm::StringRef name);

  TimingDetail detail;
  std::vector<Row> rows; ///< in the order of their begins
  std::string part, name;
  Time began; ///< since the start of the process, as all times
};

} // namespace fsdpc::driver
