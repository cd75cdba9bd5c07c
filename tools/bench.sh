#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Benchmarks compiled programs against PyTorch FSDP2 and against their limits,
# one after the other on this machine.
#
# usage: tools/bench.sh [--quick] [--only PART,…] [--memory] [--steps S]
#                       [--python VENV/bin/python] [--out FOLDER]   see --help
#
# The Python needs torch and onnx (default: build/peer, which
# tools/bench/setup-peer.sh creates).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/build.sh"
program=(/usr/bin/python3 "$root/tools/bench/bench.py" --fsdpc "$build/bin/fsdpc" --limits "$build/bin/bench_limits"
  --out "$build/bench" --python "$build/peer/bin/python")
if [[ " $* " == *" --help "* || " $* " == *" -h "* ]]; then
  exec "${program[@]}" --help
fi
install_missing
build_targets fsdpc bench_limits
if [[ " $* " != *" --python"* && ! -x $build/peer/bin/python ]]; then
  "$root/tools/bench/setup-peer.sh" "$build/peer"
fi
exec "${program[@]}" "$@"
