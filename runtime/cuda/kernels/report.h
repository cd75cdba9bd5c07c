// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The results of a microbatch: its loss, metrics and running statistics. These
// kernels run inside captured graphs, so everything that differs between
// replays is read from memory. And the numbers that a step begins with.
#pragma once

#include "runtime/cuda/kernels/grid.h"
#include "runtime/numeric/statistics_update.h"

namespace fsdpc::runtime {

/// Stores loss and divisor, or a metric, of this rank's microbatch k. The graph
/// of a section is replayed for several microbatches, so k cannot be an
/// argument: it follows from the microbatch's number among all ranks', which
/// lies with the slot's random key.
struct ReportLoss {
  const float *loss = nullptr, *valid = nullptr; ///< valid: null means 1
  const uint32_t *random = nullptr;
  uint32_t ranks = 1;
  float *losses = nullptr, *valids = nullptr; ///< valids: null for a metric
};

/// Adds to the number of gradients of the step in which a hook has replaced
/// elements.
struct CountZeroed {
  const float *zeroed = nullptr;
  double *sum = nullptr;
};

/// Takes a step's numbers, of the two lists of `count` words that the host
/// offers: the second one if the step before was skipped, which the host does
/// not know yet. `skipped` is at least 0 then.
struct TakeNumbers {
  const int64_t *skipped = nullptr;
  const uint64_t *offered = nullptr;
  uint64_t *numbers = nullptr;
  int64_t count = 0;
};

/// A buffer of the model and its copy. Without a copy its values before a step
/// are not kept: it becomes zero where they would be put back.
struct KeptBuffer {
  char *own = nullptr, *copy = nullptr;
  int64_t bytes = 0;
};

/// Copies buffers; or, with `failed`, puts their copies back if it is at least
/// 0.
struct KeepBuffers {
  const KeptBuffer *buffers = nullptr;
  int64_t count = 0;
  const int64_t *failed = nullptr;
};

/// random[2] is j = k · ranks + rank.
FSDPC_SHARED inline void body(const Grid &grid, const ReportLoss &r) {
  if (grid.first() != 0)
    return;
  // Ranks take turns, so the quotient is the number on this rank.
  uint32_t k = r.random[2] / r.ranks;
  r.losses[k] = *r.loss;
  if (r.valids)
    r.valids[k] = r.valid ? *r.valid : 1;
}

FSDPC_SHARED inline void body(const Grid &grid, const CountZeroed &c) {
  if (grid.first() == 0)
    *c.sum += double(*c.zeroed);
}

FSDPC_SHARED inline void body(const Grid &grid, const TakeNumbers &t) {
  const uint64_t *from = t.offered + (*t.skipped >= 0 ? t.count : 0);
  for (int64_t i = grid.first(); i < t.count; i += grid.stride())
    t.numbers[i] = from[i];
}

FSDPC_SHARED inline void body(const Grid &grid, const KeepBuffers &k) {
  if (k.failed && *k.failed < 0)
    return;
  for (int64_t b = 0; b < k.count; ++b) {
    const KeptBuffer &buffer = k.buffers[b];
    const char *from = k.failed ? buffer.copy : buffer.own;
    char *to = k.failed ? buffer.own : buffer.copy;
    for (int64_t i = grid.first(); to && i < buffer.bytes; i += grid.stride())
      to[i] = from ? from[i] : 0;
  }
}

FSDPC_SHARED inline void body(const Grid &grid, const UpdateStatistics &u) {
  for (int64_t i = grid.first(); i < u.elements; i += grid.stride())
    updateElement(u, i);
}

} // namespace fsdpc::runtime
