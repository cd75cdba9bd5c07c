// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The functions of the OpenMP runtime that the host device calls, as
// section 3.2 of the OpenMP 4.5 specification declares them. oneDNN brings the
// runtime along (libgomp). Its header <omp.h> belongs to a compiler and not to
// the runtime, and clang finds one only where libomp-dev of its own version is
// installed.
#pragma once

extern "C" {
void omp_set_num_threads(int threads) noexcept;
int omp_get_max_threads() noexcept;
}
