// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kinds of compressed reductions. A new one is a row here and a class like
// its neighbours', a function reduceKind for the host (runtime/comm) and one
// for GPUs (runtime/cuda), and a word in the help of --reduce-hook.
#pragma once

#include "runtime/abi/one_bit.h"
#include "runtime/abi/power_sgd.h"
#include "runtime/abi/top_k.h"

#include <string_view>
#include <vector>

namespace fsdpc {

/// Expands ROW(Kind) for each kind.
#define FSDPC_COMPRESSIONS(ROW)                                                \
  ROW(TopK)                                                                    \
  ROW(PowerSgd)                                                                \
  ROW(OneBit)

/// Returns the description of a kind.
template <typename Kind> const CompressionInfo &infoOf() {
  static const Kind info;
  return info;
}

inline const std::vector<const CompressionInfo *> &compressions() {
#define FSDPC_COMPRESSION(Kind) &infoOf<Kind>(),
  static const std::vector<const CompressionInfo *> all = {
      FSDPC_COMPRESSIONS(FSDPC_COMPRESSION)};
#undef FSDPC_COMPRESSION
  return all;
}

/// Returns the kind of that name, or null.
inline const CompressionInfo *findCompression(std::string_view name) {
  for (const CompressionInfo *info : compressions())
    if (name == info->name)
      return info;
  return nullptr;
}

/// Returns the kind of a compression that has one, which has been checked.
inline const CompressionInfo &infoOf(const Compression &compression) {
  return *findCompression(compression.kind);
}

} // namespace fsdpc
