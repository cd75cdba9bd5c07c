/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The C ABI of the runtime: every function that a compiled program calls and
 * every structure that it provides. Generated code, the conformance tests and
 * the device backends see this header and nothing else of the runtime. The
 * calls that enqueue work are in fsdpc_calls.h, which this header includes.
 *
 * A compiled program is a table (fsdpc_program) with three entry functions.
 * Each entry function only enqueues work on streams and returns:
 *
 *   microbatch   forward, backward and gradient reduction of one microbatch
 *   update       gradient norm, clipping, optimizer, refreshed parameters
 *   evaluate     forward of one microbatch as an evaluation runs it
 *
 * A program for several shapes of its inputs has the first and the last one
 * once per shape (fsdpc_bucket). The training loop belongs to the runtime. It
 * calls `microbatch` K times and `update` once per step, so a program holds no
 * control flow of its own and the calls can be captured as a graph on devices
 * that have them.
 *
 * Errors: no function returns one. A failure inside the runtime prints one line
 * that begins with "error:" to stderr and ends the rank (see fsdpc_main).
 * Ownership: the runtime owns all memory behind the pointers it hands out. The
 * caller owns arrays that it passes and may free them when the call returns.
 * Units: sizes are in bytes unless a name says elements. Buffers are aligned to
 * 64 bytes. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One rank of the running program. Opaque to generated code. */
typedef struct fsdpc_rank fsdpc_rank;

/* Host code of a kernel for the part [begin, end) of its outer range. `buffers`
 * holds the operands, then the results. Threads may run disjoint parts at the
 * same time. The result must not depend on how the range is cut, or the number
 * of threads would change the bits. */
typedef void (*fsdpc_kernel_body)(int64_t begin, int64_t end,
                                  void *const *buffers);

/* An outlined kernel, as the program describes it. The host runs `host` over
 * [0, extent); CUDA launches the function `name` of the device code. */
typedef struct fsdpc_kernel {
  const char *name;
  fsdpc_kernel_body host;  /* null in a program for CUDA; in an emulated one,
                            * [begin, end) counts blocks of the grid */
  int64_t extent, grain;   /* host: the outer range and its smallest piece */
  int32_t blocks, threads; /* CUDA: the grid; the device function takes one
                            * pointer argument per buffer */
} fsdpc_kernel;

/* The entry functions of one bucket: a program that was compiled for several
 * shapes of its inputs has one per shape. All ranks take the same bucket in the
 * same microbatch. */
typedef struct fsdpc_bucket {
  void (*microbatch)(fsdpc_rank *);
  void (*evaluate)(fsdpc_rank *); /* null if the program has none */
} fsdpc_bucket;

/* The program that generated code hands to fsdpc_main. It must live as long as
 * the process. */
typedef struct fsdpc_program {
  const char *manifest; /* JSON, see runtime/abi/manifest.h */
  uint64_t manifest_bytes;
  const void *constants; /* constant tensors, each aligned to 64 bytes */
  uint64_t constants_bytes;
  const void *weights; /* initial values (--embed-weights), or null */
  uint64_t weights_bytes;
  void (*update)(fsdpc_rank *);
  const fsdpc_bucket *buckets; /* at least one, in the manifest's order */
  uint64_t bucket_count;
  const fsdpc_kernel *kernels; /* every kernel that a call refers to */
  uint64_t kernel_count;
  const void *device_code; /* CUDA: a fat binary; null on the host */
  uint64_t device_code_bytes;
} fsdpc_program;

/* Parses the command line and trains. Returns the exit code of the process:
 * 0 done, 2 the command line is at fault, 3 the run failed. */
int fsdpc_main(int argc, char **argv, const fsdpc_program *program);

/* ---- streams: one stream runs in order, several run concurrently ---- */
enum {
  FSDPC_STREAM_COMPUTE = 0, /* kernels and library calls */
  FSDPC_STREAM_GATHER = 1,  /* all-gathers, with their own communicator */
  FSDPC_STREAM_REDUCE = 2,  /* reduce-scatters and all-reduces, likewise */
  FSDPC_STREAMS = 3
};

/* ---- memory: spaces, and the address at a byte offset in one ---- */
enum {
  FSDPC_SPACE_ARENA = 0,    /* the planned arena; index unused */
  FSDPC_SPACE_INPUT = 1,    /* one microbatch of an input; index: the input */
  FSDPC_SPACE_CONSTANT = 2, /* fsdpc_program.constants; index unused */
  FSDPC_SPACE_BUFFER = 3,   /* BatchNorm statistics etc.; index: buffer */
  FSDPC_SPACE_WHOLE =
      4, /* a layout's parameters, all of them, in the compute type; index:
          * the layout; only where the layout keeps them (zero1, zero2, ddp) */
  FSDPC_SPACE_RANDOM = 5,   /* uint32[4]: seed low, seed high, microbatch j (0 …
                             * V-1 within the step), step (from 0); then float:
                             * the scale of the step's loss, 1/V, and the
                             * factors of the microbatch's means */
  FSDPC_SPACE_GRADIENT = 6, /* a layout's gradient in the compute type; index:
                             * the layout; only where nothing is added to it */
  FSDPC_SPACE_GATHERED = 7  /* a layout's parameters, from their gather until
                             * the arena's bytes have another use; index: the
                             * layout */
};
/* Returns the address of byte `offset` in a space. For GATHERED, `offset` is
 * where in the arena the gather puts the layout, and the result where it is in
 * this run: elsewhere if the ranks hold their shards side by side. The
 * addresses of INPUT and RANDOM alternate between two slots: ask for them in
 * every microbatch. All others stay the same for the whole run. */
void *fsdpc_pointer(fsdpc_rank *, int32_t space, int32_t index, int64_t offset);

/* ---- whose statistics of a microbatch a buffer takes ---- */
enum {
  FSDPC_BUFFERS_SEQUENTIAL = 0, /* those of all ranks, one after the other */
  FSDPC_BUFFERS_LOCAL = 1,      /* the rank's own */
  FSDPC_BUFFERS_BROADCAST = 2,  /* those of rank 0 */
  FSDPC_BUFFERS_AVERAGE = 3     /* the mean over ranks */
};

/* ---- calls: each enqueues work on a stream and returns ----
 * Every rank must make the same calls on a stream in the same order.
 *
 *   rank     the rank that the entry function was given
 *   event    0 … manifest.events - 1
 *   plan     index into the manifest's table of plans of that kind, which give
 *            the shapes, strides and types of the operands. An operand that the
 *            plan does not have (bias, mask, workspace) is null.
 *   kernel   an element of fsdpc_program.kernels
 *   layout   index into manifest.layouts; `layouts` are `count` of them
 *   buffer   index into manifest.buffers */
#include "fsdpc_calls.h"

#ifdef __cplusplus
}
#endif
