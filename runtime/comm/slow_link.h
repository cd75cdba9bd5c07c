// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A slow link between nodes, for experiments on one machine: with the
// environment variable FSDPC_CROSS_NODE_GBS=X each communicator of a rank sends
// at most X * 10^9 bytes per second to ranks of other (virtual) nodes. Training
// has the same bits with it, and only takes longer (tools/bench/hybrid.py).
//
// Available only for ranks as threads and under mpirun. As in the cost model,
// gathers and reductions do not slow each other down, and neither do the two
// directions.
#pragma once

#include <cstddef>
#include <optional>

namespace fsdpc::runtime {

class SlowLink {
public:
  explicit SlowLink(double bytesPerSecond) : bytesPerSecond(bytesPerSecond) {}

  /// Returns a link if the variable is set. Ends the job if its value is not a
  /// number above 0.
  static std::optional<SlowLink> fromEnvironment();

  /// Waits until as many bytes have left.
  void send(size_t bytes);

private:
  double bytesPerSecond;
};

} // namespace fsdpc::runtime
