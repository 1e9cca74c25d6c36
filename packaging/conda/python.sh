#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# conda build's part for outrigger-zero.
set -euo pipefail
"$PYTHON" -m pip install --no-deps --no-build-isolation -vv .
