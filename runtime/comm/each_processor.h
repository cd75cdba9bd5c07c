// Compiles a function for several generations of processors; the program takes
// the best one when it starts. For loops whose every element has the same value
// in all of them.
#pragma once

// Sanitizers instrument the resolvers, which run before their runtime starts.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define FSDPC_EACH_PROCESSOR
#else
#define FSDPC_EACH_PROCESSOR                                                   \
  __attribute__((target_clones("default", "avx2", "arch=skylake-avx512")))
#endif
