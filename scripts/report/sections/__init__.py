# SPDX-License-Identifier: Apache-2.0
"""The sections of the report, in the order of the page. Each has measure(context), which returns figures or raises Missing, and
lines(figures), which says them in Markdown; those with a picture have draw(figures, folder)."""
from . import bf16

SECTIONS = {"bf16": bf16}
