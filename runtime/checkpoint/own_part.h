// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The values of a layout for which a rank answers in files and hashes.
#pragma once

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/core/rank.h"
#include "runtime/numeric/wire_type.h"

#include <cstddef>
#include <cstdint>

namespace fsdpc::runtime {

/// Values in memory that the device reaches; null if they lie in the file of
/// what is offloaded, and then `first` is where they begin in the rank's part
/// of it. The type is not f32 only of parameters without a master, of bytes,
/// and of gradients that are unsummed.
struct OwnPart {
  const char *values;
  WireType type;
  int64_t first = 0;
};

/// Returns this rank's part of what is saved of a layout: its shard, or a part
/// of that if it has replicas.
OwnPart ownPart(const fsdpc_rank &rank, size_t layout, Saved what);

/// Returns elements [begin, begin + count) of this rank's part, as f32 or as
/// bytes: where they lie, or at `place` if they must be read, downloaded or
/// widened. Fails
/// if they cannot be read from the file of what is offloaded.
Result<const void *> readPiece(const fsdpc_rank &rank, size_t layout,
                               Saved what, const OwnPart &own, int64_t begin,
                               int64_t count, void *place);

} // namespace fsdpc::runtime
