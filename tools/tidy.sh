#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs clang-tidy with the checks of .clang-tidy over the files of a build.
#
# usage: tools/tidy.sh [--sample | --all]
#
# By default over what is written without MLIR (runtime and solver) in some
# minutes. --sample takes of these what the last five commits and the working
# tree changed, and a quarter of the others, which the commit decides. --all adds
# the compiler, whose headers cost seconds for each file. FSDPC_BUILD names the
# build whose compile commands are used.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/build.sh"
cd "$root"

plain() { git ls-files -- runtime compiler/schedule tests/runtime tests/compiler/schedule | grep '\.cpp$'; }

# sample: prints the changed files of `plain`, and of the others those whose hash
# with the commit's begins with one of four digits of sixteen.
sample() {
  local commit
  commit=$(git rev-parse HEAD)
  plain | sort >"$log.plain"
  { git diff --name-only HEAD -- && git log -5 --format= --name-only; } | sort -u | comm -12 - "$log.plain"
  while read -r file; do
    if [[ $(sha1sum <<<"$commit $file") == [0-3]* ]]; then echo "$file"; fi
  done <"$log.plain"
}

log=$(mktemp)
trap 'rm -f "$log" "$log.plain"' EXIT
case ${1:-} in
  '') files=$(plain) ;;
  --sample) files=$(sample | sort -u) ;;
  --all) files=$(git ls-files -- runtime compiler passes frontends tools tests | grep '\.cpp$') ;;
  *) sed -n '4,13s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
[[ -f $build/build.ninja ]] || die "$build is not configured; run tools/test.sh first"
mapfile -t files < <(sed "s#[.+]#\\\\&#g; s#.*#^$root/&\$#" <<<"$files")
# The build may compile files in groups. These are the commands of single files,
# with the headers that the build has generated and precompiled.
configure_build "$build/single" OFF
sed -i "s#$build/single#$build#g" "$build/single/compile_commands.json"
# clang does not know g++'s own warning flags, and reports std::stable_sort of
# libstdc++ 12 for a function that it calls. The log has a header and a path per
# file, so only findings are shown.
run-clang-tidy-22 -p "$build/single" -quiet -j "$(nproc)" -extra-arg=-Wno-unknown-warning-option \
  -extra-arg=-Wno-deprecated-declarations \
  "${files[@]}" >"$log" 2>&1 ||
  { grep -E '(error|warning):' "$log" | sort -u >&2 || tail -20 "$log" >&2; die "clang-tidy found faults"; }
