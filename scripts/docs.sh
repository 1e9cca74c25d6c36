#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the documentation site: a dead link, also to a heading, is a failure.   scripts/docs.sh [OUTPUT [PAGES]]
# PAGES: a folder in the place of docs/.
set -euo pipefail
output=$(realpath -m "${1:-build/site}")
pages=${2:+$(realpath "$2")}
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export NO_MKDOCS_2_WARNING=1 # an advertisement
configuration=mkdocs.yml
if [[ -n $pages ]]; then
  made=$(mktemp --suffix=.yml)
  configuration=$made
  sed -e "s|^docs_dir: .*|docs_dir: $pages|" -e "s|^hooks: .*|hooks: [$PWD/scripts/docs/hooks.py]|" mkdocs.yml > "$configuration"
fi
log=$(mktemp)
trap 'rm -f "$log" "${made:-}"' EXIT
# Not --quiet: it would count no warnings.
"${OTR_PYTHON:-build/venv/bin/python}" -m mkdocs build --strict --config-file "$configuration" --site-dir "$output" > "$log" 2>&1 || { grep -v INFO "$log" >&2 && exit 1; }
echo "$output/index.html"
