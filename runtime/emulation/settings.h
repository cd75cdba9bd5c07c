// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Settings of the emulation, from environment variables (README.md).
#pragma once

#include "runtime/support/status.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace fsdpc::runtime::emulation {

/// A fault to inject.
struct Fault {
  enum Kind {
    none,
    launch,
    hang,
    nccl,
    silent,
    lateMemory,
    endless,
    memory,
    driver,
    fewDevices,
    oldNccl,
    refuseShared,
    refuseWindows,
    refuseProducts,
    refuseEpilogues,
    refuseConvolutions,
    refuseAttention
  };
  /// `number` and `rank` matter only for the first six. README.md says what
  /// each fault does.
  Kind kind = none;
  int64_t number = 1; ///< of the launch, collective and so on, from 1
  int rank = 0;
};

struct Settings {
  uint64_t seed = 1; ///< of delays and orders; 0: no delays, one order
  size_t memory = size_t(4) << 30; ///< bytes per device
  size_t pinned = SIZE_MAX;        ///< bytes of pinned memory
  int devices = 8;
  int blocksAtOnce = 1; ///< of one kernel, each on a thread of the host
  int rank = 0;         ///< of this process, as its launcher says
  Fault fault;
  std::string volumes; ///< file for what communicators have sent; may be empty
};

/// Parses FSDPC_EMULATION_FAULT. The error names the legal forms.
Result<Fault> parseFault(const std::string &text);
/// Returns the name of the first variable that begins like the emulation's but
/// is not one of them, or an empty string.
std::string unknownVariable(char **environment);
/// Reads FSDPC_EMULATION_SEED, …_MEMORY, …_PINNED, …_DEVICES, …_BLOCKS, …_FAULT
/// and …_VOLUMES. If one cannot be parsed, or another variable of that prefix
/// is set, prints one line and exits with code 2: a misspelt setting must not
/// pass unnoticed.
Settings readSettings();

} // namespace fsdpc::runtime::emulation
