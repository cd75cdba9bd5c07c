// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reduction of --reduce-hook=top-k (runtime/abi/top_k.h): a rank sends the
// largest elements of the residual. Their sum is formed rank by rank, and
// within a rank in the order of places, so that no bit depends on which part of
// the sum is asked for.
#include "runtime/numeric/top_k.h"
#include "runtime/comm/compressed_reduction.h"

#include <algorithm>

namespace fsdpc::runtime {

void reduceTopK(Communicator &ranks, const CompressedReduction &reduction) {
  for (const Member &member : reduction.members)
    takeGradient(reduction, member, /*add=*/true,
                 reduction.residual + member.offset);
  int64_t count = reduction.compression.amount;
  auto *exchanged = reinterpret_cast<ChosenElement *>(reduction.exchanged);
  ChosenElement *own = exchanged + ranks.rank() * count;
  takeLargest(reduction.residual, reduction.elements, count, own);
  ranks.allGather(own, exchanged, size_t(chosenBytes(count)));
  if (!reduction.add)
    std::fill_n(reduction.sum, reduction.sumElements, 0.0f);
  for (int64_t i = 0; i < ranks.size() * count; ++i) {
    int64_t place = int64_t(exchanged[i].index) - reduction.sumBegin;
    if (place >= 0 && place < reduction.sumElements)
      reduction.sum[place] += exchanged[i].value;
  }
}

} // namespace fsdpc::runtime
