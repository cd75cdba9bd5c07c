// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The parts of a gradient that a reduce-scatter gives to the ranks: their type,
// places and padding. All host backends and the CUDA runtime share them.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/numeric/reduce.h"

namespace fsdpc::runtime {

/// Returns the type in which a gradient is handed to other ranks. A gradient of
/// a 16-bit type travels as it is, and is widened (which is exact), or rounded
/// to the other 16-bit type, where it is summed.
WireType handedOver(const ReduceScatter &part);

/// Element of the gradient at which rank r's part begins.
inline int64_t partOf(const ReduceScatter &part, int64_t rank) {
  return rank * (part.stride ? part.stride : part.shardElements);
}

/// Number of elements in [begin, begin + count) of the layout that are not
/// padding.
int64_t realElements(const ReduceScatter &part, int64_t begin, int64_t count);

/// Returns the bytes of this rank's result.
inline size_t resultBytes(const ReduceScatter &part) {
  return size_t(part.shardElements) * sizeof(float);
}

/// Writes the padding of a result, elements [begin, end) of the shard: zero, or
/// what the sum continues from.
void sumPadding(const ReduceScatter &part, int64_t begin, int64_t end);

/// Address of element `begin` of the gradient.
const void *gradientAt(const ReduceScatter &part, int64_t begin);

} // namespace fsdpc::runtime
