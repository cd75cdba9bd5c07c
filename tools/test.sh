#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs missing packages, checks the sources (tools/check.sh), builds, and runs
# all tests, ONNX's own node tests and the blocks of docs/fine-tune.md. Then runs
# clang-tidy and, as the commit decides, either the importer, whole programs and the
# fuzz targets under the address and undefined-behaviour sanitizers, or the CUDA
# runtime on the emulated GPU and whole programs under the thread sanitizer.
#
# usage: tools/test.sh [--quick | --all]
#        tools/test.sh ARGUMENTS OF CTEST      e.g. tools/test.sh -R lit
#
# With --quick, builds and runs the tests of lit, the unit tests and those of the
# pages that take less than twenty seconds: what does not compile and run whole
# programs.
#
# Without flags, what is long runs as a sample that the commit decides: a quarter of
# the tests with the label `drawn`, and parts of others. With --all each test and
# both sanitizers run, clang-tidy checks every file, the compiler's too (the
# sample: a quarter of the files without MLIR, and what changed last), every
# target is fuzzed for a minute (the sample: the seeds of all but `dump`), and
# every constant of the optimizers, all node tests of the onnx package, eight
# microbatches on every number of ranks, resuming under every strategy, a flipped
# bit in every block of a checkpoint, 500 runs that are killed and resumed, 2000
# random graphs, 3000 losses, thousands of edits of dumps and the failure of every system call
# are tried. TensorBoard, from PyPI, reads the event files, and
# tools/data/fsdpc-data converts what pyarrow and tokenizers wrote. The wheel is
# built, and trains in a minimal system. With arguments
# of ctest, only the selected tests run, without clang-tidy and sanitizers.
#
# At the end a table shows the seconds of each part, on the clock and of processors.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/build.sh"
. "$(dirname "${BASH_SOURCE[0]}")/lib/parts.sh"
all=
case ${1:-} in
  --all) all=--all; shift ;;
  --quick) set -- -LE 'numeric|drawn|long' ;;
esac
if [[ $# == 0 ]]; then
  packages+=(clang-tidy-22)
  packages+=(python3-venv)
fi
# Shows reports in the test `report`, which is skipped without a browser.
packages+=(chromium-headless-shell)
# Makes a Debian package in the test `deb`, which is skipped without them.
packages+=(dpkg-dev file)
# Emulates old processors in the test `old_processor`, which is skipped without it.
if [[ $all ]]; then
  packages+=(qemu-user)
fi
install_missing
if [[ $# == 0 ]]; then
  part "checking sources"
  "$root"/tools/check.sh
fi
part "the build"
build_targets
if [[ $# == 0 ]]; then
  part "packages from PyPI"
  install_python onnx==1.22.0 tokenizers==0.23.3 -r "$root"/tools/docs/requirements.txt
fi
part "CTest"
selected=("$@")
if [[ $# == 0 && ! $all ]]; then
  selected=(-E "$("$root"/tools/lib/not_drawn.py "$build")")
  say "left out with this commit: ${selected[1]}"
fi
ctest --test-dir "$build" --output-on-failure -j 2 "${selected[@]}" </dev/null
if [[ $# != 0 ]]; then
  list_parts
  exit
fi
if [[ $all ]]; then
  part "estimated steps on every GPU"
  # Not without a toolkit, as in CTest.
  if disassembler=$(sed -n 's/^FSDPC_NVDISASM:FILEPATH=//p' "$build"/CMakeCache.txt) && [[ -x $disassembler ]]; then
    /usr/bin/python3 "$root"/tests/programs/cuda/step_estimates.py --build "$build" --nvdisasm "$disassembler" --all
  fi
  part "every optimizer"
  /usr/bin/python3 "$root"/tests/programs/updates/optimizers.py --build "$build" --all
  /usr/bin/python3 "$root"/tests/programs/updates/groups.py --build "$build" --all
  /usr/bin/python3 "$root"/tests/programs/sharding/reduce_hooks.py --build "$build" --all
  part "the same bits at every number of ranks"
  /usr/bin/python3 "$root"/tests/programs/sharding/canonical_bits.py --build "$build" --all
  part "resuming under every strategy, optimizer and schedule"
  /usr/bin/python3 "$root"/tests/programs/training/resume.py --build "$build" --all
  part "flipping a bit in every block of a checkpoint"
  /usr/bin/python3 "$root"/tests/programs/training/checkpoints.py --build "$build" --all
  part "every evaluation"
  /usr/bin/python3 "$root"/tests/programs/training/evaluation.py --build "$build" --all
  part "hosts that vanish"
  # 77: no namespaces can be made here.
  /usr/bin/python3 "$root"/tests/programs/hosts/two_hosts.py --build "$build" --all || [[ $? == 77 ]]
  part "killing and resuming runs"
  /usr/bin/python3 "$root"/tests/programs/training/soak.py --build "$build" --histories 125
  part "hostile files, names and limits of memory"
  /usr/bin/python3 "$root"/tests/programs/hostile_inputs.py --build "$build" --all
  /usr/bin/python3 "$root"/tests/programs/taken_names.py --build "$build" --all
  /usr/bin/python3 "$root"/tests/programs/little_memory.py --build "$build" --all
  part "random graphs"
  /usr/bin/python3 "$root"/tests/programs/numerics/graphs.py --build "$build" --count 2000 --all
  part "random losses"
  /usr/bin/python3 "$root"/tests/programs/numerics/loss_forms.py --build "$build" --all
  part "editing dumps"
  /usr/bin/python3 "$root"/tests/programs/schedules/edited_dumps.py --build "$build" --edits 60 --moves 15 \
    linears gpt_opset18 gpt_dropout conv_net gpt vit
  part "failing every system call of a run"
  FSDPC_FAULTS=all ctest --test-dir "$build" --output-on-failure -R '^runtime_faults_test$' </dev/null
fi
# Other shapes for each commit; a failure prints its seed.
part "adjoints against central differences"
FSDPC_SEEDS=$([[ $all ]] && echo 300 || echo 20) FSDPC_SEED=$((16#$(git -C "$root" rev-parse --short=6 HEAD))) "$build"/bin/adjoint_test --gtest_brief=1
part "ONNX's own node tests"
others=$build/python
sample=(--sample 200 --seed "$(git -C "$root" rev-parse HEAD)")
[[ -z $all ]] || sample=()
"$others"/bin/python "$root"/tests/programs/numerics/backend_suite.py --build "$build" "${sample[@]}"
part "the blocks of docs/fine-tune.md"
/usr/bin/python3 "$root"/tests/programs/training/fine_tune.py --build "$build" --python "$others"/bin/python
if [[ $all ]]; then
  part "the Debian package, twice and under lintian"
  packages+=(debootstrap lintian)
  install_missing
  /usr/bin/python3 "$root"/tests/packages/deb_test.py --cpack "$(command -v cpack)" --build "$build" --all
  part "the wheel in a minimal system"
  "$root"/tools/package.sh
  if [[ $EUID == 0 ]]; then sudo=(); else sudo=(sudo); fi
  "${sudo[@]}" "$root"/tests/packages/wheel_chroot.sh "$build"/wheel/fsdpc-*.whl "$build"
  part "reading event files with TensorBoard, and converting data"
  install_python tensorboard pyarrow
  for test in watching data_converter; do
    /usr/bin/python3 "$root"/tests/programs/training/$test.py --build "$build" --python "$others"/bin/python
  done
fi
part "clang-tidy"
"$root"/tools/tidy.sh "${all:---sample}"

cd "$root"
# sanitized PRESET SANITIZER trains every case of whole programs over a sanitized runtime.
sanitized() {
  /usr/bin/python3 tests/programs/sanitized.py --build "$build" --sanitized "build-$1" --sanitizer "$2" --all
}
# A tree of its own for each takes long to build.
commit=$(git rev-parse --short=6 HEAD)
sanitizer=$((16#$commit % 2))
# The importer and the fuzz targets read files that others made.
if [[ $all || $sanitizer == 0 ]]; then
  part "building for the address sanitizer"
  build_preset fuzz onnx_fixtures_test onnx_mutation_test fsdpc_runtime
  part "the importer and whole programs under the address sanitizer"
  ctest --preset fuzz -j 2 </dev/null
  [[ ! $all ]] || sanitized fuzz address
  part "the fuzz targets"
  # `dump` needs all passes under the sanitizers.
  if [[ $all ]]; then tools/fuzz.sh all 60; else tools/fuzz.sh '!(dump)' 0; fi
fi
# The emulation, what uses it, and the real side of its table.
if [[ $all || $sanitizer == 1 ]]; then
  part "building for the thread sanitizer"
  build_preset tsan thread_tests
  part "testing under the thread sanitizer"
  FSDPC_EMULATION_BLOCKS=2 ctest --preset tsan -j 2 -L '^threads$' </dev/null
  [[ ! $all ]] || sanitized tsan thread
fi
list_parts
