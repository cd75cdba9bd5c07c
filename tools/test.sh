#!/usr/bin/env bash
# Installs missing packages, checks the sources (tools/check.sh), builds, and runs
# all tests. Then runs the tests of the CUDA runtime again, on the emulated GPU
# under the thread sanitizer.
#
# usage: tools/test.sh [arguments of ctest]      e.g. tools/test.sh -R lit
#
# With arguments, only the selected tests run, without the sanitizer.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/build.sh"
install_missing
if [[ $# == 0 ]]; then
  say "checking sources"
  "$root"/tools/check.sh
fi
build_targets
say "testing"
ctest --test-dir "$build" --output-on-failure -j 2 "$@" </dev/null
[[ $# == 0 ]] || exit 0

# The tests of the emulation and of what uses it.
threaded=(runtime_cuda_program_test library_test_emulated device_collectives_test
  own_kernels_test emulation_streams_test emulation_memory_test
  emulation_libraries_test emulation_nccl_test)
cd "$root"
say "building for the thread sanitizer"
cmake --preset tsan -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache >/dev/null
cmake --build --preset tsan -j "$(jobs_that_fit)" </dev/null
say "testing under the thread sanitizer"
ctest --preset tsan -R "^($(IFS='|'; echo "${threaded[*]}"))\$" </dev/null
