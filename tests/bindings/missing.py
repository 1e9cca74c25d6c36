# SPDX-License-Identifier: Apache-2.0
"""Stands in for a test whose tools are missing: a skip that says so, or a failure under OTR_REQUIRE_ALL=1."""
import os
import sys

required = os.environ.get("OTR_REQUIRE_ALL") == "1"
print("missing:" if required else "skipped:", "; ".join(sys.argv[1:]))
sys.exit(1 if required else 77)
