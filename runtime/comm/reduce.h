// Casting to the wire type and summing over ranks. All host backends share this
// arithmetic, so that none changes a bit. Sums are in f32 and in rank order.
#pragma once

#include "runtime/comm/communicator.h"

namespace fsdpc::runtime {

// Parses a manifest's "f32", "bf16" or "f16".
inline WireType wireType(const std::string &dtype) {
  return dtype == "bf16"  ? WireType::bf16
         : dtype == "f16" ? WireType::f16
                          : WireType::f32;
}
inline size_t wireBytes(WireType type) { return type == WireType::f32 ? 4 : 2; }

// Writes source[i], cast to the wire type, to destination[i]. One of the types
// is f32, or both are the same. The two arrays must not overlap.
void castToWire(const void *source, WireType type, WireType wire, int64_t count,
                void *destination);

// One rank's contribution to a shard. The values may be cast to the wire type
// already, or not yet. The values belong to the caller.
struct Addend {
  const void *values;
  WireType type;
};

// Writes to shard[i] the sum over the ranks of addends[rank][i], each rounded
// to the wire type first and added in rank order. The sum begins with shard[i]
// if `add` is set, which then lies in no source, else with initial[i] if that
// is not null.
void sumRanks(const Addend *addends, int ranks, WireType wire, int64_t count,
              float *shard, bool add, const float *initial = nullptr);

// Returns the type in which a gradient is handed to other ranks. A gradient of
// a 16-bit type travels as it is, and is widened (which is exact), or rounded
// to the other 16-bit type, where it is summed.
WireType handedOver(const ReduceScatter &part);

// Element of the gradient at which rank r's part begins.
inline int64_t partOf(const ReduceScatter &part, int64_t rank) {
  return rank * (part.stride ? part.stride : part.shardElements);
}

// Number of elements in [begin, begin + count) of the layout that are not
// padding.
int64_t realElements(const ReduceScatter &part, int64_t begin, int64_t count);

// Writes the padding of a result, elements [begin, end) of the shard: zero, or
// what the sum continues from.
void sumPadding(const ReduceScatter &part, int64_t begin, int64_t end);

// Address of element `begin` of the gradient.
const void *gradientAt(const ReduceScatter &part, int64_t begin);

} // namespace fsdpc::runtime
