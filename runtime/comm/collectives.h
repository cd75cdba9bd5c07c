// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collectives on typed values for any communicator, written once over
// Communicator::transfer. The training loop's own collectives are methods of
// the communicator, which each backend makes fast.
//
// All of them are collective, block the calling thread, and need the same
// counts, types and roots on every rank. Values are combined in rank order, so
// all backends and all numbers of pieces give the same bits:
//
// - f32: each step in f32.
// - bf16 and f16: each value is widened to f32, combined there in rank order,
//   and the result is rounded once, to nearest even.
// - i32 and i64: sum and prod wrap around; avg divides the sum, which for i32
//   is that of 64 bits, and rounds towards zero.
//
// avg is the sum divided by the number of ranks. min and max are NaN if one of
// the values is.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/numeric/fold.h"

namespace fsdpc::runtime {

/// Copies the root's bytes to all ranks.
void broadcast(Communicator &ranks, void *data, size_t bytes, int root);
/// Leaves the root with rank r's piece at whole[r * bytes …]. The root's own
/// may be there already; other ranks' `whole` is not used.
void gather(Communicator &ranks, const void *piece, void *whole, size_t bytes,
            int root);
/// Leaves rank r with whole[r * bytes …] of the root; the inverse of gather.
void scatter(Communicator &ranks, const void *whole, void *piece, size_t bytes,
             int root);
/// Leaves rank r's whole[s * bytes …] with what rank s had for rank r. `sent`
/// and `received` must not overlap.
void allToAll(Communicator &ranks, const void *sent, void *received,
              size_t bytes);
/// A message from one rank to another, which receives it. Other ranks do not
/// call. Both block: the sender until the data has left its memory, the
/// receiver until it is there.
void send(Communicator &ranks, const void *data, size_t bytes, int to);
void receive(Communicator &ranks, void *data, size_t bytes, int from);

/// Combines `count` values of every rank. `result` may be `values`. With reduce
/// only the root's `result` is written, and may be null elsewhere.
void allReduce(Communicator &ranks, const void *values, void *result,
               int64_t count, ValueType type, Reduction reduction);
void reduce(Communicator &ranks, const void *values, void *result,
            int64_t count, ValueType type, Reduction reduction, int root);
/// Leaves rank r with part r of `count` values each. `result` may be this
/// rank's part of `values`.
void reduceScatter(Communicator &ranks, const void *values, void *result,
                   int64_t count, ValueType type, Reduction reduction);

} // namespace fsdpc::runtime
