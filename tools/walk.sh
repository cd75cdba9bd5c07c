#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs the README's walk-through from a PyTorch model to a trained file and back:
# every sh and python block between its two marks, in order and unchanged.
#
# usage: tools/walk.sh [PYTHON]      PYTHON needs torch, onnx and safetensors
#                                    (tools/bench/setup-peer.sh installs them)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/build.sh"
python=${1:-$build/peer/bin/python}
[[ -x $python ]] || die "no Python at '$python'; create one with tools/bench/setup-peer.sh $build/peer"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
awk -v folder="$folder" '
  /<!-- walk -->/ { inside = 1 }
  /<!-- end of walk -->/ { inside = 0 }
  /^```$/ { file = "" }
  file != "" { print > file }
  inside && /^```(sh|python)$/ { file = sprintf("%s/%02d.%s", folder, ++count, substr($0, 4)) }
' "$root/README.md"
cd "$folder"
export PATH=$build/bin:$PATH
touch session.py
for block in [0-9]*; do
  say "${block%.*}"
  cat "$block"
  case $block in
    *.sh) bash -e "$block" </dev/null ;;
    *.python) # All blocks are one session, so a block sees the names of earlier ones.
      cat "$block" >>session.py
      "$python" session.py </dev/null ;;
  esac
done
