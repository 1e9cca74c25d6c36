# SPDX-License-Identifier: Apache-2.0
"""Markdown in the form of the other pages."""
import statistics
import textwrap


def wrapped(text):
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 140, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def table(head, rows):
    rows = [[str(cell).replace("|", "/") for cell in row] for row in rows]
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)] + [""]


def spread(values, form="{:.1f}"):
    """One value, or from the least to the largest."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"


def over_seeds(values, digits=4):
    """The mean, ± the standard deviation where there are several."""
    mean = f"{statistics.fmean(values):.{digits}f}"
    return f"{mean} ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else mean
