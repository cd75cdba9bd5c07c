// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/comm/top_k_reduction.h"
#include "runtime/comm/reduce_scatter.h"
#include "runtime/numeric/top_k.h"

#include <algorithm>

namespace fsdpc::runtime {

static void addGradient(const TopKReduction &reduction) {
  for (const Member &member : reduction.members) {
    Addend own = {static_cast<const char *>(reduction.gradient) +
                      size_t(member.offset) * elementBytes(reduction.type),
                  reduction.type};
    sumRanks(&own, 1, WireType::f32, member.elements,
             reduction.residual + member.offset, /*add=*/true);
  }
}

void reduceTopK(Communicator &ranks, const TopKReduction &reduction,
                ChosenElement *exchanged) {
  addGradient(reduction);
  ChosenElement *own = exchanged + ranks.rank() * reduction.chosen;
  takeLargest(reduction.residual, reduction.elements, reduction.chosen, own);
  ranks.allGather(own, exchanged, size_t(chosenBytes(reduction.chosen)));
  if (!reduction.add)
    std::fill_n(reduction.sum, reduction.sumElements, 0.0f);
  int64_t all = ranks.size() * reduction.chosen;
  for (int64_t i = 0; i < all; ++i) {
    int64_t place = int64_t(exchanged[i].index) - reduction.sumBegin;
    if (place >= 0 && place < reduction.sumElements)
      reduction.sum[place] += exchanged[i].value;
  }
}

} // namespace fsdpc::runtime
