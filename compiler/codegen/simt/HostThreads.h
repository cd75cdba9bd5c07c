// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Functions that grid code calls when it runs on the host with several threads
// per block, each a thread of the operating system. Tests define them.
#pragma once

#include <cstdint>

extern "C" {

/// Returns the number of the calling thread in its block.
int32_t fsdpc_simt_thread();

/// Wait until all threads of the block, or of the caller's warp, have called.
void fsdpc_simt_barrier();
void fsdpc_simt_warp_barrier();

/// Waits until `threads` threads have called with this number of a barrier,
/// from 1 to 15. A number always stands for the same threads.
void fsdpc_simt_team_barrier(int32_t number, int32_t threads);

/// Returns the value that thread `own number ^ offset` of the warp has passed.
/// All threads of the warp must call.
int32_t fsdpc_simt_shuffle(int32_t value, int32_t offset);

/// Returns the shared memory of the block, aligned to 16 bytes. All calls of a
/// kernel pass the same `bytes`.
void *fsdpc_simt_shared(int64_t bytes);
}
