// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts events until the one at which a fault is to strike. A test names the
// kind of event, the rank and the number, so each failure of a real machine can
// be played at every place where it could occur.
#pragma once

#include "runtime/emulation/settings.h"

#include <atomic>

namespace fsdpc::runtime::emulation {

/// The fault of this process, if any. Safe for concurrent use.
class Faults {
public:
  explicit Faults(const Fault &fault) : fault(fault) {}
  bool is(Fault::Kind kind) const { return fault.kind == kind; }
  /// Must be called at each event of the kind on the rank. Returns true if this
  /// is the event that fails.
  bool strikes(Fault::Kind kind, int rank) {
    return is(kind) && rank == fault.rank && ++count == fault.number;
  }

private:
  const Fault fault;
  std::atomic<int64_t> count{0};
};

} // namespace fsdpc::runtime::emulation
