#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The test of wheel_chroot.sh in a system that exists already.
#
# usage: tests/packages/wheel_in.sh SYSTEM WHEEL BUILD     as root
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
place=$1 wheel=$2 build=$3
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
models=(linears llama conv_net)
for file in usr/bin/{c++,cc,gcc,ld,as,mpirun} usr/lib/x86_64-linux-gnu/{libdnnl.so.2,libmpi.so.40,libgomp.so.1,crti.o,libLLVM.so.22.1}; do
  [[ ! -e $place/$file ]] || die "'$place' has $file, without which the wheel should work"
done

# The same inputs on both sides, under the same path.
inputs=$place/inputs
rm -rf "$inputs" "$place/venv"
mkdir "$inputs"
cp "$wheel" "$inputs/"
cp -r "$root/tests/models/data" "$inputs/"
for model in "${models[@]}"; do cp "$root/tests/models/$model".onnx* "$inputs/"; done

cat >"$inputs/run.sh" <<'END'
set -eu
cd /inputs
seconds() { date +%s.%N; }
# part NAME COMMAND… prints the seconds of a command.
part() {
  name=$1 begun=$(date +%s.%N)
  shift
  "$@" || { echo "error: $name failed"; exit 1; }
  python3 -c "print(f'$name: {$(date +%s.%N) - $begun:.2f} s')"
}
train() { "./$1" $(for file in data/$1.*.npy; do name=${file#data/$1.}; echo "--data=${name%.npy}=$file"; done) \
    --ranks 2 --steps 3 --save "$1.safetensors" >"$1.out" 2>&1 || { cat "$1.out"; exit 1; }; }
all=$(date +%s.%N)
python3 -m venv /venv
part "pip install" /venv/bin/pip install --quiet --no-index *.whl
part "fsdpc doctor" /venv/bin/fsdpc doctor
/venv/bin/fsdpc --version
for model in "$@"; do
  part "compile $model" /venv/bin/fsdpc "$model.onnx" -o "$model" --quiet
  part "train $model" train "$model"
  [ "$model" != "$1" ] || python3 -c "print(f'from nothing to the first trained model: {$(date +%s.%N) - $all:.2f} s')"
done
/venv/bin/python -c "import fsdpc; fsdpc.compile('$1.onnx', 'again', target='cuda-emulation'); print('from Python: ok')"
# A part that is missing has its name and what to do.
lib=$(echo /venv/lib/python3*/site-packages/fsdpc/compiler)
mv "$lib/lib/link/complete" /inputs/kept
/venv/bin/fsdpc "$1.onnx" -o again 2>&1 | grep -q 'install fsdpc again'
mv "$lib/bin/fsdpc" /inputs/moved
/venv/bin/fsdpc --version 2>&1 | grep -q 'install fsdpc again'
END
unshare --mount bash -c '
  place=$0
  mount -t proc proc "$place/proc"
  mount --rbind /dev "$place/dev"
  mkdir -p "$place/dev/shm"
  exec chroot "$place" env -i PATH=/usr/bin:/bin HOME=/root sh /inputs/run.sh "$@"
' "$place" "${models[@]}"

# The source build, on the same files.
expected=$(mktemp -d)
trap 'rm -rf "$expected"' EXIT
cd "$inputs"
for model in "${models[@]}"; do
  data=()
  for file in data/"$model".*.npy; do
    name=${file#data/$model.}
    data+=("--data=${name%.npy}=$file")
  done
  "$build/bin/fsdpc" "$model.onnx" -o "$expected/$model" --quiet
  "$expected/$model" "${data[@]}" --ranks 2 --steps 3 --save "$expected/$model.safetensors" 2>/dev/null
  cmp "$model.safetensors" "$expected/$model.safetensors" || die "$model trains to other bits with the wheel"
  echo "$model: the bits of the source build"
done
