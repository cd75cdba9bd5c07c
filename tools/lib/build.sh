# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Shell functions that test.sh, demo.sh and bench.sh share: install missing
# packages on Debian 12, configure, build. Source it from any folder.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=${FSDPC_BUILD:-$root/build}

# Packages for the build and for the tests. LLVM 22 is in Debian 12's security updates.
packages=(g++ clang-22 libclang-rt-22-dev cmake ninja-build ccache git
  libmlir-22-dev mlir-22-tools llvm-22-dev llvm-22-tools liblld-22-dev clang-format-22
  libopenmpi-dev openmpi-bin libdnnl-dev libsodium-dev
  protobuf-compiler libprotobuf-dev libre2-dev libxxhash-dev libcli11-dev zlib1g-dev nlohmann-json3-dev
  libgtest-dev libgmock-dev python3 python3-numpy)
# A build for GPUs gets headers from PyPI.
if [[ -x /usr/local/cuda/bin/nvcc ]]; then
  packages+=(python3-pip)
fi

say() { printf '== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

install_missing() {
  local missing=() package
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      missing+=("$package")
  done
  [[ ${#missing[@]} == 0 ]] && return
  command -v apt-get >/dev/null || die "missing packages: ${missing[*]}; apt-get was not found, so install them by hand"
  local sudo=()
  if [[ $EUID != 0 ]]; then
    command -v sudo >/dev/null || die "missing packages: ${missing[*]}; run as root, or install them by hand"
    sudo=(sudo)
  fi
  say "installing ${missing[*]}"
  "${sudo[@]}" apt-get update -q </dev/null
  apt-cache show "${missing[@]}" >/dev/null ||
    die "apt does not find all of: ${missing[*]}; use Debian 12 with bookworm-security in its sources"
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends \
    "${missing[@]}" </dev/null
}

# install_python ARGUMENTS OF PIP installs packages from PyPI in build/python.
install_python() {
  [[ -x $build/python/bin/python ]] || /usr/bin/python3 -m venv "$build"/python
  "$build"/python/bin/pip install -q --disable-pip-version-check "$@"
}

# Compilers of MLIR code take up to 1.5 GB each.
jobs_that_fit() {
  local cores memory
  cores=$(nproc)
  memory=$(($(awk '/MemAvailable/ { print $2 }' /proc/meminfo) / 1500000))
  echo $((memory < 1 ? 1 : memory < cores ? memory : cores))
}

# ccache takes objects that were compiled with a precompiled header only if it may
# overlook macros and times in that header; those of MLIR's and LLVM's hold none.
export CCACHE_SLOPPINESS=pch_defines,time_macros

# configure_build FOLDER GROUPED configures a folder for clang-22. MLIR's headers
# are precompiled, to a size that can be shared. GROUPED (ON or OFF): see
# FSDPC_GROUPED in tools/cmake/FsdpcTargets.cmake.
configure_build() {
  mkdir -p "$1"
  cmake -S "$root" -B "$1" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_C_COMPILER=clang-22 -DCMAKE_CXX_COMPILER=clang++-22 -DFSDPC_PRECOMPILE=ON -DFSDPC_GROUPED="$2" \
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache >"$1/configure.log" 2>&1 ||
    { cat "$1/configure.log"; rm -f "$1/build.ninja"; die "cannot configure $1; see CMake's output above"; }
}

# build_targets [TARGET…] builds the targets, or all if none is given. A new build
# folder compiles in groups, unless FSDPC_GROUPED=OFF says otherwise.
build_targets() {
  if [[ ! -f $build/build.ninja ]]; then
    say "configuring $build"
    configure_build "$build" "${FSDPC_GROUPED:-ON}"
  fi
  say "building"
  NINJA_STATUS='[%f/%t %es] ' ninja -C "$build" -j "$(jobs_that_fit)" "$@" </dev/null
}

# build_preset PRESET TARGET… configures a preset of CMakePresets.json and builds
# the targets in build-PRESET.
build_preset() {
  local preset=$1
  shift
  # Each time, since $build may be another one than before.
  (cd "$root" && cmake --preset "$preset" -DFSDPC_PLAIN_BUILD="$build" \
    -DCMAKE_CXX_COMPILER_LAUNCHER=ccache -DCMAKE_C_COMPILER_LAUNCHER=ccache >/dev/null)
  ninja --quiet -C "$root/build-$preset" -j "$(jobs_that_fit)" "$@" </dev/null
}

# Open MPI needs flags to run as root, and with more ranks than cores.
run_mpi() {
  local ranks=$1
  shift
  mpirun --allow-run-as-root --oversubscribe -np "$ranks" "$@" </dev/null
}
