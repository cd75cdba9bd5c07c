// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reduction of --reduce-hook=top-k (runtime/abi/top_k.h): each rank adds
// its gradient to a residual, sends the largest elements of the sum, and keeps
// the others in the residual for the next reduction. All host backends share
// it.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/abi/top_k.h"
#include "runtime/comm/communicator.h"

#include <span>

namespace fsdpc::runtime {

/// One rank's operand: its gradient of one layout. Memory belongs to the
/// caller.
struct TopKReduction {
  const void *gradient; ///< `elements` long
  WireType type;        ///< of `gradient`
  int64_t elements;     ///< of the layout, without padding
  std::span<const Member> members;
  int64_t chosen; ///< elements that each rank sends, from 1 to `elements`
  /// The part that this rank has not sent yet, `elements` long; zero at first,
  /// and always zero between members.
  float *residual;
  /// The result: elements [sumBegin, sumBegin + sumElements) of the sum. It may
  /// be `gradient`, or lie in it, if that is f32 and `add` is not set.
  float *sum;
  int64_t sumBegin, sumElements;
  bool add; ///< true: the sum continues from `sum`; false: it overwrites it
};

/// Sums what all ranks have chosen: rank by rank, and within a rank in the
/// order of places, so that no bit depends on which part of the sum is asked
/// for. `exchanged` has chosenBytes() of the reduction for each rank. Memory
/// between members may hold anything and counts as zero.
void reduceTopK(Communicator &ranks, const TopKReduction &reduction,
                ChosenElement *exchanged);

} // namespace fsdpc::runtime
