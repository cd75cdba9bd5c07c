// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Casting to the wire type and summing over ranks. All host backends share this
// arithmetic, so that none changes a bit. Sums are in f32 and in rank order.
#pragma once

#include "runtime/numeric/wire_type.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace fsdpc::runtime {

/// Returns the type of a manifest's "f32", "bf16" or "f16".
inline WireType wireType(const std::string &dtype) {
  WireType type = WireType::f32;
  parseElementType(dtype, type);
  return type;
}

/// Writes source[i], cast to the wire type, to destination[i]. One of the types
/// is f32, or both are the same. The two arrays must not overlap.
void castToWire(const void *source, WireType type, WireType wire, int64_t count,
                void *destination);

/// One rank's contribution to a shard. The values may be cast to the wire type
/// already, or not yet. The values belong to the caller.
struct Addend {
  const void *values;
  WireType type;
};

/// Writes to shard[i] the sum over the ranks of addends[rank][i], each rounded
/// to the wire type first and added in rank order. The sum begins with shard[i]
/// if `add` is set, which then lies in no source, else with initial[i] if that
/// is not null. The count may be part of a result of `resultBytes`: a large one
/// is written past the caches (streaming.h).
void sumRanks(const Addend *addends, int ranks, WireType wire, int64_t count,
              float *shard, bool add, const float *initial = nullptr,
              size_t resultBytes = 0);

} // namespace fsdpc::runtime
