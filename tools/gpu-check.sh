#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Checks the CUDA target on a real GPU: tests, losses, speed. The check is packed
# on a machine with a toolkit, which needs no GPU, and runs on a machine with a
# GPU, which needs little else (docs/gpu-check.md).
#
# usage: tools/gpu-check.sh --pack FOLDER   compile everything into FOLDER
#        FOLDER/gpu-check.sh [--help]       run the check, in under 8 minutes
#        tools/gpu-check.sh FOLDER          the same from a checkout
# PYTHON is the Python to use. It needs numpy, and PyTorch to compare with.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if [[ ${1:-} == --pack ]]; then
  . "$here/lib/build.sh"
  install_missing
  build_targets gpu_check_programs
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
