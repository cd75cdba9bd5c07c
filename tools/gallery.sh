#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains the models of docs/gallery by fsdpc and by torch, in build/gallery, and
# prints the table of docs/gallery/README.md. Some ten minutes on two cores.
#
# usage: tools/gallery.sh [--python PYTHON] [--write | NAME…]
#
# NAME is a folder of docs/gallery; without one, all are trained. With --write,
# the table and the curves replace those in docs/gallery. PYTHON has torch, onnx,
# onnxscript, safetensors and scikit-learn (default: build/peer/bin/python, which
# is made if need be). Books and sounds come from Debian packages, which apt-get
# downloads and nobody installs.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/build.sh"
gallery=$root/docs/gallery
python= write=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --write) write=--write; shift ;;
    --python) python=${2:?--python needs a path}; shift 2 ;;
    *) sed -n '7,14s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done
[[ ! $write || $# == 0 ]] || die "--write needs the rows of all trainings; leave out $*"
if [[ ! $python ]]; then
  python=$build/peer/bin/python
  [[ -x $python ]] || "$root"/tools/bench/setup-peer.sh "$build/peer"
  "$python" -m pip install -q --disable-pip-version-check scikit-learn
fi
"$python" -c 'import torch, onnx, onnxscript, safetensors, sklearn' || die "'$python' lacks a package"
build_targets fsdpc
# By name, so `gpt` comes before `lora`, which starts from its weights.
all=()
for script in "$gallery"/*/train.py; do
  all+=("$(basename "$(dirname "$script")")")
done
for name in "${@:-${all[@]}}"; do
  [[ -f $gallery/$name/train.py ]] || die "no training '$name' in docs/gallery; there are ${all[*]}"
  say "$name"
  "$python" "$gallery/$name/train.py" --build "$build"
done
"$python" "$gallery"/lib/table.py --build "$build" $write
