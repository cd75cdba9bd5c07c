// What code for a grid calls when it runs on the host with several threads a
// block, each a thread of the operating system: tests define these functions.
#pragma once

#include <cstdint>

extern "C" {

/// The calling thread's number in its block.
int32_t fsdpc_simt_thread();

/// Wait for all threads of the block, or of the caller's warp.
void fsdpc_simt_barrier();
void fsdpc_simt_warp_barrier();

/// The value of thread `own number ^ offset` of the warp; all of its threads
/// call.
int32_t fsdpc_simt_shuffle(int32_t value, int32_t offset);

/// The block's shared memory, `bytes` long in all of a kernel's calls, aligned
/// to 16 bytes.
void *fsdpc_simt_shared(int64_t bytes);
}
