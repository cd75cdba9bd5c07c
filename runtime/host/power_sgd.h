// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reduction of --reduce-hook=power-sgd (runtime/abi/power_sgd.h): of each
// matrix M of a gradient, with what earlier reductions have left of it, the
// ranks send P = M Q and then Q = Mᵀ P, where P has been made orthonormal.
// Their sum over ranks is P Qᵀ, and what it lacks of M stays in the residual.
#pragma once

#include "runtime/abi/manifest.h"
#include "runtime/abi/power_sgd.h"
#include "runtime/comm/communicator.h"

#include <span>

namespace fsdpc::runtime {

/// One rank's operand: its gradient of one layout. Memory belongs to the
/// caller. A factor has its vectors one after the other, `rank` of them.
struct PowerReduction {
  const void *gradient;
  WireType type; ///< of `gradient`
  std::span<const Member> members;
  int64_t rank; ///< of the factors
  /// The part of this rank's gradients that has not been sent, as long as the
  /// layout; zero at first.
  float *residual;
  /// The right factors of the last reduction, with which this one begins; zero
  /// at first. powerBytes() of PowerSizes::right, equal on all ranks.
  float *right;
  float *left; ///< scratch, powerBytes() of PowerSizes::left
  /// The result: elements [sumBegin, sumBegin + sumElements) of the sum. It may
  /// be `gradient`, or lie in it, if that is f32 and `add` is not set.
  float *sum;
  int64_t sumBegin, sumElements;
  bool add; ///< true: the sum continues from `sum`; false: it overwrites it
};

/// Every rank computes the whole sum with the same bits, and writes the part
/// that it is asked for. Memory between members may hold anything and counts as
/// zero.
void reducePowerSgd(Communicator &ranks, const PowerReduction &reduction);

/// Makes `count` vectors of `length` elements orthonormal, one after the other
/// (Gram and Schmidt). One that depends on those before it becomes zero.
void orthonormaliseFactor(float *vectors, int64_t count, int64_t length);

} // namespace fsdpc::runtime
