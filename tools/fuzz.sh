#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds and runs the fuzz targets (tests/fuzz) under the address and
# undefined-behaviour sanitizers, and prints executions, coverage and corpus size
# of each.
#
# usage: tools/fuzz.sh [TARGET|all] [SECONDS]     default: all, 60; 0 runs the seeds alone
#        tools/fuzz.sh '!(dump)' 0                a pattern of bash selects several
#        tools/fuzz.sh --hour [TARGET|all]       an hour of each, then the seeds are renewed
#        tools/fuzz.sh --keep TARGET
#
# New inputs that cover more are collected in build-fuzz/corpus/TARGET; inputs
# that fail are written to build-fuzz/findings, and the exit code is then 1.
# --keep adds what covers more to the seeds in tests/fuzz/corpus/TARGET, which are
# under version control: keep them small. --hour adds the smallest of them, as long
# as all seeds have at most 4 MB, and drops seeds that others make superfluous.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/build.sh"
cd "$root"

# Limits of those that hold MLIR: memory in MiB, and seconds per input. `dump`
# keeps a context over its inputs, which looks like a leak of each: its leaks are
# looked for once, at the end.
declare -A memory=([importer]=3072 [dump]=3072) slowest=([importer]=20 [dump]=20) leaks=([dump]=0)
limits_of() { echo "-rss_limit_mb=${memory[$1]:-1024} -timeout=${slowest[$1]:-5} -detect_leaks=${leaks[$1]:-1}"; }

# run_target TARGET SECONDS: fuzzes, and prints a line for the table.
run_target() {
  local name=$1 corpus=build-fuzz/corpus/$1 log=build-fuzz/$1.log code=0 dictionary=() until=-max_total_time=$2
  [[ $2 == 0 ]] && until=-runs=0
  mkdir -p "$corpus" build-fuzz/findings
  [[ -f tests/fuzz/$name.dict ]] && dictionary=("-dict=tests/fuzz/$name.dict")
  # shellcheck disable=SC2046
  ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
    "build-fuzz/bin/fuzz_$name" "$corpus" "tests/fuzz/corpus/$name" "${dictionary[@]}" $(limits_of "$name") \
    "$until" -max_len=65536 -print_final_stats=1 \
    -artifact_prefix="build-fuzz/findings/$name-" </dev/null >"$log" 2>&1 || code=$?
  local runs covered edges
  runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  covered=$(grep -o 'cov: [0-9]*' "$log" | tail -1 | cut -d' ' -f2)
  edges=$(sed -n 's/.*Loaded .* (\([0-9]*\) inline 8-bit counters).*/\1/p' "$log" | head -1)
  printf '%-14s %12s %16s %8s %10s\n' "$name" "${runs:-0}" "${covered:-0} of ${edges:-0}" \
    "$(find "$corpus" "tests/fuzz/corpus/$name" -type f | wc -l)" "$(du -sb --apparent-size "tests/fuzz/corpus/$name" | cut -f1)"
  [[ $code == 0 ]] && return
  grep -m 3 -E '^(==.*ERROR|not kept|.*runtime error|SUMMARY)' "$log" || tail -3 "$log"
  return 1
}

seed_bytes() { find tests/fuzz/corpus -type f -printf '%s\n' | awk '{sum += $1} END {print sum + 0}'; }

# renew_seeds TARGET: minimises the seeds and what the last run has found.
renew_seeds() {
  local name=$1 seeds=tests/fuzz/corpus/$1 new=build-fuzz/minimised/$1
  rm -rf "$new" && mkdir -p "$new"
  # Seeds with a name were written by hand. They stay, and the merge adds to them.
  find "$seeds" -type f -regextype egrep -not -regex '.*/[0-9a-f]{12}' -exec cp {} "$new" \;
  "build-fuzz/bin/fuzz_$name" -merge=1 "$new" "$seeds" "build-fuzz/corpus/$name" >"build-fuzz/$name.merge.log" 2>&1 ||
    { echo "the seeds of '$name' cannot be merged; see build-fuzz/$name.merge.log"; return 1; }
  find "$seeds" -type f -regextype egrep -regex '.*/[0-9a-f]{12}' -delete
  local file
  while read -r file; do
    (($(seed_bytes) + $(stat -c %s "$new/$file") > mostSeedBytes)) && break
    cp "$new/$file" "$seeds/${file:0:12}"
  done < <(find "$new" -type f -regextype egrep -regex '.*/[0-9a-f]{40}' -printf '%s %f\n' | sort -n | cut -d' ' -f2)
}

mostSeedBytes=$((4 << 20))
(($(seed_bytes) <= mostSeedBytes)) || die "the seeds in tests/fuzz/corpus have $(seed_bytes) bytes, of at most $mostSeedBytes"
renew=
if [[ ${1:-} == --hour ]]; then
  renew=1
  set -- "${2:-all}" 3600
fi
install_missing
if [[ ${1:-} == --keep ]]; then
  build_preset fuzz "fuzz_$2"
  "build-fuzz/bin/fuzz_$2" -merge=1 "tests/fuzz/corpus/$2" "build-fuzz/corpus/$2" 2>&1 | tail -1
  exit
fi
targets=()
for seeds in tests/fuzz/corpus/*/; do
  name=$(basename "$seeds")
  # shellcheck disable=SC2053
  [[ ${1:-all} == all || $name == ${1:-all} ]] && targets+=("$name")
done
[[ ${#targets[@]} -gt 0 ]] || die "there is no target '${1:-}' in tests/fuzz/corpus"
build_preset fuzz "${targets[@]/#/fuzz_}"
printf '%-14s %12s %16s %8s %10s\n' target executions 'covered edges' inputs 'kept bytes'
# One core per target.
failed=0
for name in "${targets[@]}"; do
  while (($(jobs -rp | wc -l) >= ${FSDPC_FUZZ_JOBS:-$(nproc)})); do wait -n || failed=1; done
  run_target "$name" "${2:-60}" &
done
while (($(jobs -p | wc -l) > 0)); do wait -n || { (($? == 127)) && break; failed=1; }; done
for name in "${targets[@]}"; do
  [[ -z $renew ]] || renew_seeds "$name" || failed=1
done
exit $failed
