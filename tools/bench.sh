#!/usr/bin/env bash
# Compiled programs against PyTorch FSDP2, one after the other on this machine.
#
# usage: tools/bench.sh [--python VENV/bin/python] [--quick] [--out FOLDER]
#
# The Python is one with torch and onnx, as tools/bench/setup-peer.sh makes it
# (default: it makes build/peer).
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/build.sh"
install_missing
build_targets fsdpc
arguments=("$@")
if [[ " $* " != *" --python"* ]]; then
  [[ -x $build/peer/bin/python ]] || "$root/tools/bench/setup-peer.sh" "$build/peer"
  arguments+=(--python "$build/peer/bin/python")
fi
exec python3 "$root/tools/bench/bench.py" --fsdpc "$build/bin/fsdpc" --out "$build/bench" "${arguments[@]}"
