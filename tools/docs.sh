#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Builds docs/ and the reference pages from TableGen as a site, in build/site.
# Broken links are errors. Installs mkdocs-material from PyPI in build/python.
#
# usage: tools/docs.sh [--serve]     --serve: shows it at http://127.0.0.1:8000 and follows edits
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/build.sh"
[[ $# == 0 || $* == --serve ]] || { sed -n '4,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
install_python -r "$root"/tools/docs/requirements.txt
"$root"/tools/gen-docs.sh "$build"/docs
export FSDPC_GENERATED_DOCS=$build/docs
if [[ $# == 1 ]]; then
  exec "$build"/python/bin/python -m mkdocs serve --strict -f "$root"/mkdocs.yml
fi
"$build"/python/bin/python -m mkdocs build --strict -f "$root"/mkdocs.yml -d "$build"/site
say "the site is in $build/site; its search needs a server (--serve)"
