# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Names the parts of a long script and says at the end how long each took, in
# seconds on the clock and of processors. Needs lib/build.sh.
part_name=
part_rows=()

# processor_seconds: of this shell and of all processes that it has waited for.
processor_seconds() {
  awk -v ticks="$(getconf CLK_TCK)" '{ printf "%.0f\n", ($14 + $15 + $16 + $17) / ticks }' /proc/$$/stat
}

# part NAME: ends the part before and begins this one.
part() {
  end_part
  say "$1"
  part_name=$1 part_began=$SECONDS part_used=$(processor_seconds)
}

end_part() {
  [[ $part_name ]] || return 0
  part_rows+=("$(printf '%-44s %8d %8d' "$part_name" $((SECONDS - part_began)) $(($(processor_seconds) - part_used)))")
  part_name=
}

# list_parts: ends the last part and prints a table of all.
list_parts() {
  end_part
  printf '%-44s %8s %8s\n' part seconds processor
  printf '%s\n' "${part_rows[@]}"
  printf '%-44s %8d %8d\n' all "$SECONDS" "$(processor_seconds)"
}
