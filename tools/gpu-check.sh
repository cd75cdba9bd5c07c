#!/usr/bin/env bash
# What the CUDA target does on a real GPU: tests, losses, speed. Made on a
# machine with a toolkit and without a GPU, run on one with a GPU and little
# else (docs/gpu-check.md).
#
# usage: tools/gpu-check.sh --pack FOLDER   compile everything into FOLDER
#        FOLDER/gpu-check.sh [--help]       run it there, in under 8 minutes;
#        tools/gpu-check.sh FOLDER          the same from a checkout
# PYTHON is the Python to run it with: one with numpy, and PyTorch as the peer.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ ${1:-} == --pack ]]; then
  . "$here/lib/build.sh"
  install_missing
  build_targets
  exec /usr/bin/python3 "$root/tools/gpu-check/pack.py" --build "$build" "${@:2}"
fi
folder=$here
if [[ ! -f $folder/pack.json ]]; then
  folder=${1:-}
  if [[ ! -f $folder/pack.json ]]; then
    sed -n '/^# usage/,/^[^#]/ { /^#/ s/^# \{0,1\}//p }' "${BASH_SOURCE[0]}" >&2
    exit 2
  fi
  shift
fi
exec "${PYTHON:-python3}" "$folder/check/check.py" --folder "$folder" "$@"
