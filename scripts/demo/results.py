# SPDX-License-Identifier: Apache-2.0
"""What a run left behind: its CSV and its summary."""

import csv
import json
import os
import statistics


class Run:
    def __init__(self, folder, name):
        self.name = self.title = name
        with open(os.path.join(folder, name + ".json"), encoding="ascii") as file:
            self.summary = json.load(file)
        with open(os.path.join(folder, name + ".csv"), encoding="ascii") as file:
            rows = list(csv.DictReader(file))
        self.tokens = [int(row["tokens"]) for row in rows]
        self.loss = [float(row["loss"]) for row in rows]
        self.held_out = [(int(row["tokens"]), float(row["held_out_loss"]))
                         for row in rows if row["held_out_loss"]]
        self.seconds = [float(row["seconds"]) for row in rows]

    def bytes_per_parameter(self, kind):
        """kind: resident_bytes or peak_bytes, of all ranks together."""
        total = next(e for e in self.summary["memory"] if e["purpose"] == "total")
        return total[kind] / self.summary["parameters"]

    def final_loss(self, steps=50):
        """One batch's loss jumps about; the mean of the last ones is the run's."""
        return statistics.mean(self.loss[-steps:])

    def vanished(self):
        updates = self.summary["updates"]
        return self.summary["vanished"] / updates if updates else 0.0


HEADINGS = (("configuration", "", ""), ("loss", "final", ""), ("loss", "mean", ""), ("loss", "std", ""),
            ("held-out", "nats/char", ""), ("bytes per", "parameter,", "resident"),
            ("bytes per", "parameter,", "peak"), ("step", "median", "ms"),
            ("updates", "vanished", "%"))


def table(runs):
    rows = []
    for run in runs:
        rows.append((run.title, f"{run.final_loss():.3f}", f"{statistics.mean(run.loss):.3f}",
                     f"{statistics.pstdev(run.loss):.3f}", f"{run.summary['held_out']:.3f}",
                     f"{run.bytes_per_parameter('resident_bytes'):.2f}",
                     f"{run.bytes_per_parameter('peak_bytes'):.2f}",
                     f"{1e3 * statistics.median(run.seconds):.1f}", f"{100 * run.vanished():.2f}"))
    widths = [max(len(cell) for cell in (*heading, *(row[i] for row in rows)))
              for i, heading in enumerate(HEADINGS)]

    def line(cells):
        first = f"{cells[0]:<{widths[0]}}"
        return "  ".join([first, *(f"{c:>{w}}" for c, w in zip(cells[1:], widths[1:]))]).rstrip()

    rule = "─" * (sum(widths) + 2 * (len(widths) - 1))
    heads = [line([heading[k] for heading in HEADINGS]) for k in range(3)]
    return "\n".join([*heads, rule, *(line(row) for row in rows)])


def memory_table(runs):
    """Bytes per parameter by purpose, resident / peak."""
    purposes = [entry["purpose"] for entry in runs[0].summary["memory"]]
    width = max(map(len, purposes))
    lines = [" " * width + "".join(f"  {run.name:>17}" for run in runs)]
    for i, purpose in enumerate(purposes):
        cells = []
        for run in runs:
            entry, count = run.summary["memory"][i], run.summary["parameters"]
            cells.append(f"{entry['resident_bytes'] / count:7.3f} /{entry['peak_bytes'] / count:7.3f}")
        lines.append(f"{purpose:<{width}}" + "".join(f"  {cell:>17}" for cell in cells))
    return "\n".join(lines)
