#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs clang-tidy with the checks of .clang-tidy over the files of a build.
#
# usage: tools/tidy.sh [--all]
#
# By default over what is written without MLIR (runtime and solver) in
# about two minutes; --all adds the compiler, whose headers cost seconds for
# each file. FSDPC_BUILD names the build whose compile commands are used.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/build.sh"
files='(runtime|compiler/schedule|tests/runtime|tests/compiler/schedule)'
case ${1:-} in
  '') ;;
  --all) files='(runtime|compiler|passes|frontends|tools|tests)' ;;
  *) sed -n '4,10s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
[[ -f $build/compile_commands.json ]] || die "$build is not configured; run tools/test.sh first"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# clang does not know g++'s own warning flags, and reports std::stable_sort of
# libstdc++ 12 for a function that it calls. The log has a header and a path per
# file, so only findings are shown.
run-clang-tidy-22 -p "$build" -quiet -j "$(nproc)" -extra-arg=-Wno-unknown-warning-option \
  -extra-arg=-Wno-deprecated-declarations \
  "^$root/$files/.*\.cpp\$" >"$log" 2>&1 ||
  { grep -E '(error|warning):' "$log" | sort -u >&2 || tail -20 "$log" >&2; die "clang-tidy found faults"; }
