// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles a function once per generation of processors; the loader picks the
// best when the program starts. Only for elementwise loops, whose results must
// be the same bits in every version.
#pragma once

// Not with sanitizers: they instrument the resolvers, which run before the
// sanitizer's runtime starts.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define FSDPC_EACH_PROCESSOR
#else
#define FSDPC_EACH_PROCESSOR                                                   \
  __attribute__((target_clones("default", "avx2", "arch=skylake-avx512")))
#endif
