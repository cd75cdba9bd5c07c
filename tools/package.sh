#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds a wheel: the Python package with the compiler, the runtimes and all that
# they need but glibc and libstdc++. Machines with the wheel need no LLVM, oneDNN,
# MPI, compiler or linker. Prints sizes and seconds.
#
# usage: tools/package.sh [FOLDER]
#
# The wheel goes to FOLDER (default: build/wheel). $FSDPC_ONEDNN_SOURCE names a
# file or a URL with the source of oneDNN, by default that of Debian's package.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/build.sh"
[[ $# -le 1 && ${1:-} != -* ]] || die "usage: tools/package.sh [FOLDER]"
folder=$(realpath -m "${1:-$build/wheel}")
packages+=(libzstd-dev curl ca-certificates)
install_missing

# The source of Debian's libdnnl2, which the source build links with: the same
# version gives the same bits. Only products are used, so only they are built.
dnnl_version=2.6.3
dnnl_sha256=fd47d2470000b5015f6e34134f799683050f81cbc04f53a3b0d323df1bb900bc
dnnl_source=${FSDPC_ONEDNN_SOURCE:-https://github.com/oneapi-src/oneDNN/archive/refs/tags/v$dnnl_version.tar.gz}
# What matmul needs: the common part, lists of primitives, code generators.
dnnl_files='dnnl_common\.dir/|dnnl_cpu\.dir/(cpu_|bfloat16|binary_injector|gemm_inner_product_utils|platform|primitive_attr|ref_eltwise|zero_point|gemm/|matmul/|jit_utils/|reorder/)|dnnl_cpu_x64\.dir/(amx_tile|brgemm/|cpu_|gemm/|injectors/|jit_avx512_core_bf16cvt|jit_gemm_inner_product_utils|matmul/|utils/)'
dnnl=$build/onednn
static_dnnl=$dnnl/libdnnl.a

build_dnnl() {
  [[ ! -f $dnnl/done ]] || return 0
  say "building oneDNN $dnnl_version"
  mkdir -p "$dnnl/source"
  if [[ -f $dnnl_source ]]; then
    cp "$dnnl_source" "$dnnl/source.tar.gz"
  else
    curl -fsSL "$dnnl_source" -o "$dnnl/source.tar.gz" || die "cannot read '$dnnl_source'; set FSDPC_ONEDNN_SOURCE"
  fi
  echo "$dnnl_sha256  $dnnl/source.tar.gz" | sha256sum --check --quiet ||
    die "'$dnnl_source' is not the source of oneDNN $dnnl_version; set FSDPC_ONEDNN_SOURCE"
  tar xzf "$dnnl/source.tar.gz" -C "$dnnl/source" --strip-components=1
  # Debian's options, without GPUs. g++ compiles it there too.
  cmake -S "$dnnl/source" -B "$dnnl/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++ -DCMAKE_CXX_COMPILER_LAUNCHER=ccache \
    -DDNNL_LIBRARY_TYPE=STATIC -DDNNL_BUILD_TESTS=OFF -DDNNL_BUILD_EXAMPLES=OFF \
    -DDNNL_CPU_RUNTIME=OMP -DDNNL_GPU_RUNTIME=NONE -DDNNL_ENABLE_CONCURRENT_EXEC=ON \
    -DDNNL_ENABLE_PRIMITIVE=MATMUL -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    '-DCMAKE_CXX_FLAGS=-ffunction-sections -fdata-sections' >"$dnnl/configure.log" 2>&1 ||
    { cat "$dnnl/configure.log"; die "cannot configure oneDNN"; }
  # The other files are other primitives, from which nothing would be linked.
  local objects
  mapfile -t objects < <(ninja -C "$dnnl/build" -t targets all | sed -n 's/\.o: .*/.o/p' | grep -E "$dnnl_files")
  [[ ${#objects[@]} -gt 200 ]] || die "oneDNN's files are not as expected: ${#objects[@]} of them match"
  ninja --quiet -C "$dnnl/build" -j "$(jobs_that_fit)" "${objects[@]}" </dev/null
  rm -f "$static_dnnl"
  (cd "$dnnl/build" && ar rcs "$static_dnnl" "${objects[@]}")
  touch "$dnnl/done"
}

started=$SECONDS
build_dnnl
say "oneDNN: $((SECONDS - started)) s"
started=$SECONDS
build_targets fsdpc >/dev/null
cmake -S "$root" -B "$build" -DFSDPC_STATIC_DNNL="$static_dnnl" >/dev/null
build_targets fsdpc_standalone fsdpc_runtime fsdpc_runtime_cuda_emulation
if grep -q '^FSDPC_NVCC:FILEPATH=.*nvcc' "$build/CMakeCache.txt"; then
  build_targets fsdpc_runtime_cuda
fi
say "the standalone compiler: $((SECONDS - started)) s"

started=$SECONDS
mkdir -p "$folder"
wheel=$(/usr/bin/python3 "$root/tools/package/wheel.py" --build "$build" --dnnl "$dnnl/source" --output "$folder")
say "wheel: $((SECONDS - started)) s, $(($(stat -c %s "$wheel") / 1000000)) MB: $wheel"
