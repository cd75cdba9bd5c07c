// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reduce-scatter that sends blocks of 8 or 4 bits in place of values.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/comm/communicator.h"
#include "runtime/numeric/blocks.h"

#include <span>
#include <vector>

namespace fsdpc::runtime {

/// Sums all ranks' gradients of `type` and leaves each rank with its part, as
/// Communicator::reduceScatter does. Each addend is converted to blocks, sent
/// in them, widened to f32 and added in rank order. So is the rank's own, so
/// that the sum does not depend on who holds it. Belongs to one rank; keeps its
/// lists from call to call, so that a step allocates nothing.
class BlockReducer {
public:
  /// The field `wire` of `part` is not used, `initial` and `stride` must not be
  /// set, and shards are whole blocks. Elements of no member count as zero,
  /// since memory between members may hold anything. `scratch` has
  /// reducedPieceBytes() of the type.
  void reduceScatter(Communicator &ranks, const ReduceScatter &part,
                     std::span<const Member> members, BlockType blockType,
                     void *scratch);

private:
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
};

} // namespace fsdpc::runtime
