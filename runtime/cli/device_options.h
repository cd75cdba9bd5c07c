// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the command line decides about a rank's device.
#pragma once

#include <cstdint>
#include <string>

namespace fsdpc::runtime {

/// Settings of a device that the manifest does not have.
struct DeviceOptions {
  int threads = 1;            ///< host: compute threads
  int64_t accumulate = 1;     ///< microbatches per rank and step
  bool deterministic = false; ///< CUDA: sums in rank order, no atomics
  /// CUDA: the device keeps the model's buffers, to put them back after a step
  /// that is left out.
  bool leavesOut = false;
  bool graphs = true; ///< CUDA: capture sections as graphs and replay them
  /// CUDA: the device's memory is allocated by NCCL, and registered as
  /// symmetric windows where it can be.
  bool symmetricMemory = true;
  /// CUDA: blocks that a collective of NCCL may take; 0: NCCL's choice.
  int64_t ncclMaxCtas = 0;
  /// CUDA: the file that keeps the fastest algorithm of each product; empty:
  /// the library's own choices, untimed.
  std::string tuneProducts;
  /// CUDA: how long ranks may take to join a communicator, and a collective or
  /// a wait for the GPU in the first step, which loads code, and in later ones;
  /// 0: no limit.
  double joinSeconds = 300, firstStepSeconds = 1800, watchdogSeconds = 600;
};

} // namespace fsdpc::runtime
