#!/usr/bin/env bash
# Runs the README's walk from a PyTorch model to a trained file and back, as it
# stands there: every sh and python block between its two marks, in order.
#
# usage: tools/walk.sh [PYTHON]      a Python with torch, onnx and safetensors,
#                                    as tools/bench/setup-peer.sh makes it
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/build.sh"
python=${1:-$build/peer/bin/python}
[[ -x $python ]] || die "no Python at '$python'; tools/bench/setup-peer.sh $build/peer makes one"
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
    *.python) # One session: a block sees what those before it made.
      cat "$block" >>session.py
      "$python" session.py </dev/null ;;
  esac
done
