#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Runs the checks that need no build: formatting, comments that document, the
# order of folders, licence headers, the version, the limits of
# tools/code-report.py, English of the pages (tools/tics.py), and generated files.
#
# usage: tools/check.sh [--fix]     --fix: mends what it can
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
format=${CLANG_FORMAT:-clang-format-22}
fix=${1:-}
[[ -z $fix || $fix == --fix ]] || { sed -n '4,8s/^# \{0,1\}//p' "$0" >&2; exit 2; }
failed=0

sources() {
  find compiler passes frontends runtime tools tests -regex '.*\.\(h\|cpp\|cu\|cuh\|c\)' -print0
}

echo "== comments"
tools/doc-comments.py ${fix:+--fix} || failed=1
echo "== formatting"
if [[ $fix ]]; then
  sources | xargs -0 "$format" -i
else
  sources | xargs -0 "$format" --dry-run -Werror || failed=1
fi
echo "== folders"
tools/include-graph.py --check || failed=1
echo "== licence"
tools/license-headers.py ${fix:+--fix} || failed=1
echo "== version"
tools/version.py ${fix:---check} || failed=1
echo "== counts"
tools/code-report.py || failed=1
echo "== English"
tools/tics.py || failed=1
echo "== generated files"
if [[ $fix ]]; then
  tools/gen-abi.py
else
  tools/gen-abi.py --check || failed=1
fi
exit $failed
