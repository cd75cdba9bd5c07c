#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Trains a small GPT from scratch: installs missing packages, builds, compiles a
# model without weights, and trains it on two ranks on the bytes of the licences
# in /usr/share/common-licenses until its loss is below 2.2.
#
# usage: tools/demo.sh [FOLDER]      writes to FOLDER (default: build/demo)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/build.sh"
goal=2.2
steps=600
out=$(realpath -m "${1:-$build/demo}")
began=$SECONDS
install_missing
build_targets fsdpc
mkdir -p "$out"
rm -rf "$out/ir" "$out/run.jsonl"

say "compiling tests/models/demo_gpt.onnx"
"$build/bin/fsdpc" "$root/tests/models/demo_gpt.onnx" -o "$out/train" --dump-ir="$out/ir" \
  --strategy=zero3 --unit-class='*Block' --plan-ranks=2 \
  --optimizer=adamw --lr=1e-3 --clip-grad-norm=1.0 \
  --init-rule='*.bias=zeros' --init-rule='*ln_*.weight=ones' --init-rule='*=normal(0,0.02)'

# Sorted by name, without links to other files.
find /usr/share/common-licenses -type f | LC_ALL=C sort | xargs cat >"$out/text"
say "training on $(stat -c %s "$out/text") bytes"
run_mpi 2 "$out/train" --tokens "input_ids=$out/text:u8" --tokens "labels=$out/text:u8+1" \
  --steps $steps --shuffle --lr-schedule=cosine,warmup=20,min=1e-4 \
  --log "$out/run.jsonl" --save "$out/trained.safetensors"

# A step has only 16 windows, so the loss is averaged over ten steps.
loss=$(tail -n 10 "$out/run.jsonl" | sed 's/.*"loss":\([^,]*\).*/\1/' | awk '{ s += $1 } END { printf "%.3f", s / NR }')
say "dumps after each pass: $out/ir; log: $out/run.jsonl; weights: $out/trained.safetensors"
awk "BEGIN { exit !($loss < $goal) }" || die "loss $loss after $steps steps is not below $goal"
echo "PASS: loss $loss (mean of the last ten steps) is below $goal; took $((SECONDS - began)) s"
