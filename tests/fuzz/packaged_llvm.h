// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Options of the sanitizers for targets that link LLVM as it is packaged. It is
// not instrumented, so the memory that its allocators poison is not checked,
// and what it keeps until the process ends is not a leak of ours.
#pragma once

extern "C" const char *__asan_default_options() {
  return "detect_container_overflow=0:allow_user_poisoning=0";
}

extern "C" const char *__lsan_default_suppressions() {
  return "leak:libLLVM\nleak:libMLIR\n";
}
