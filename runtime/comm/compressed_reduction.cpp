// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/compressed_reduction.h"

#include "runtime/abi/compressions.h"
#include "runtime/comm/reduce_scatter.h"

namespace fsdpc::runtime {

// Each kind's file defines its function.
#define FSDPC_COMPRESSION(Kind)                                                \
  void reduce##Kind(Communicator &, const CompressedReduction &);
FSDPC_COMPRESSIONS(FSDPC_COMPRESSION)
#undef FSDPC_COMPRESSION

// The manifest has been checked, so one of the kinds is meant.
void reduceCompressed(Communicator &ranks,
                      const CompressedReduction &reduction) {
  const CompressionInfo *info = &infoOf(reduction.compression);
#define FSDPC_COMPRESSION(Kind)                                                \
  if (info == &infoOf<Kind>())                                                 \
    return reduce##Kind(ranks, reduction);
  FSDPC_COMPRESSIONS(FSDPC_COMPRESSION)
#undef FSDPC_COMPRESSION
}

void takeGradient(const CompressedReduction &reduction, const Member &member,
                  bool add, float *to) {
  Addend own = {static_cast<const char *>(reduction.gradient) +
                    size_t(member.offset) * elementBytes(reduction.type),
                reduction.type};
  sumRanks(&own, 1, WireType::f32, member.elements, to, add);
}

} // namespace fsdpc::runtime
