// Converting values to blocks of 8 or 4 bits and back, and the reduce-scatter
// that sends such blocks (shared/blocks.h). All host backends share them.
//
// A block's scale is its largest magnitude over the largest code, so that the
// largest element is exact up to rounding in f32. A block of which an element
// is not finite becomes NaN, and one whose elements are all below 2^-100
// becomes zero: no step then depends on whether a thread flushes denormals.
#pragma once

#include "runtime/comm/communicator.h"
#include "shared/blocks.h"
#include "shared/manifest.h"

#include <span>
#include <vector>

namespace fsdpc::runtime {

// Blocks of one type in a row. Each has its codes, of 4 bits the even element's
// in the low half of a byte, and then its scale.
struct Blocks {
  char *bytes; // at a multiple of 4
  BlockType type;

  // Returns the blocks behind the first `count` ones.
  Blocks from(int64_t count) const {
    return {bytes + count * blockBytes(type), type};
  }
  uint8_t *codes() const { return reinterpret_cast<uint8_t *>(bytes); }
  float &scale() const {
    return *reinterpret_cast<float *>(bytes + blockBytes(type) - sizeof(float));
  }
};

// Converts `elements` values, and pads the last of `count` blocks with zeros.
// There may be fewer values than the blocks hold, and none at all.
void toBlocks(const void *values, WireType type, int64_t elements,
              Blocks blocks, int64_t count);

// Writes the first `elements` values of the blocks in the type.
void fromBlocks(Blocks blocks, int64_t elements, WireType type, void *values);

// Sums all ranks' gradients of `type` and leaves each rank with its part, as
// Communicator::reduceScatter does. Each addend is converted to blocks, sent in
// them, widened to f32 and added in rank order. So is the rank's own, so that
// the sum does not depend on who holds it. Belongs to one rank; keeps its lists
// from call to call, so that a step allocates nothing.
class BlockReducer {
public:
  // The field `wire` of `part` is not used, `initial` and `stride` must not be
  // set, and shards are whole blocks. Elements of no member count as zero,
  // since memory between members may hold anything. `scratch` has
  // reducedPieceBytes() of the type.
  void reduceScatter(Communicator &ranks, const ReduceScatter &part,
                     std::span<const Member> members, BlockType blockType,
                     void *scratch);

private:
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
};

} // namespace fsdpc::runtime
