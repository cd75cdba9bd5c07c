#!/usr/bin/env bash
# Installs what is missing, builds, and runs all tests.
#
# usage: tools/test.sh [arguments of ctest]      e.g. tools/test.sh -R lit
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/build.sh"
install_missing
build_targets
say "testing"
ctest --test-dir "$build" --output-on-failure -j 2 "$@" </dev/null
