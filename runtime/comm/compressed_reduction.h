// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compressed reductions on the host (runtime/abi/compression.h): each rank adds
// its gradient to a residual, sends less than the sum, and keeps the rest in
// the residual for the next reduction. All host backends share them. A kind is
// a file of its own.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/comm/communicator.h"

#include <span>

namespace fsdpc::runtime {

/// One rank's operand: its gradient of one layout. Memory belongs to the
/// caller.
struct CompressedReduction {
  const Compression &compression;
  const void *gradient; ///< `elements` long
  WireType type;        ///< of `gradient`
  int64_t elements;     ///< of the layout, without padding
  std::span<const Member> members;
  /// The part of this rank's gradients that it has not sent yet, `elements`
  /// long; zero at first, and always zero between members.
  float *residual;
  /// The states of all members (CompressionInfo::stateBytes), equal on all
  /// ranks; zero at first. Null if the kind has none.
  float *state;
  char *exchanged; ///< scratch, CompressionInfo::exchangedBytes
  /// The result: elements [sumBegin, sumBegin + sumElements) of the sum. It may
  /// be `gradient`, or lie in it, if that is f32 and `add` is not set.
  float *sum;
  int64_t sumBegin, sumElements;
  bool add; ///< true: the sum continues from `sum`; false: it overwrites it
};

/// Sums what all ranks send. Every rank computes the whole sum with the same
/// bits, and writes the part that it is asked for. Memory between members may
/// hold anything and counts as zero.
void reduceCompressed(Communicator &ranks,
                      const CompressedReduction &reduction);

/// Overwrites `to` with a member's gradient, in f32, or adds it. Kinds begin
/// with it.
void takeGradient(const CompressedReduction &reduction, const Member &member,
                  bool add, float *to);

} // namespace fsdpc::runtime
