#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Installs a wheel in a minimal Debian 12 that has Python and pip, and no compiler,
# linker, LLVM, MPI or oneDNN. Compiles and trains models there, with two ranks,
# and compares the bits with those of the source build. Prints seconds.
#
# usage: tests/packages/wheel_chroot.sh WHEEL BUILD     as root
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
wheel=$(realpath "$1") build=$(realpath "$2")
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
[[ $EUID == 0 ]] || die "debootstrap and chroot need root"
command -v debootstrap >/dev/null || die "no debootstrap; install it: apt-get install debootstrap"

work=$(mktemp -d)
# The mount goes with the namespace, so nothing of the machine is removed.
trap 'rm -rf "$work"' EXIT
place=$work/debian
started=$SECONDS
debootstrap --variant=minbase --include=python3,python3-venv,python3-pip bookworm "$place" >"$work/log" 2>&1 ||
  { tail -20 "$work/log"; die "debootstrap failed"; }
echo "debootstrap: $((SECONDS - started)) s"
"$root"/tests/packages/wheel_in.sh "$place" "$wheel" "$build"
