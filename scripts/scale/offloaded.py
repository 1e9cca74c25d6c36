# SPDX-License-Identifier: Apache-2.0
"""The library's own offloaded step on a simulated device, which make bench has measured, beside the model's law of it."""
import json

import offload


def taken(path):
    """The rows of each machine, and the parts of their steps that were measured alone: backward, copies, the host's update."""
    rows = []
    for name, entry in json.loads(path.read_text(encoding="utf-8"))["machines"].items():
        case = entry["cases"].get("offload_step", {"rows": []})
        rows += [{"where": name, "measured_on": case["date"], "case": row["case"], "seconds": row["ours_seconds"]["median"], **row["phases"]}
                 for row in case["rows"] if row["ratio"] is not None]
    return {"rows": rows}


def predicted(row):
    return offload.whole(row["backward_s"], row["download_s"], row["update_s"], row["upload_s"])


def errors(found):
    """(row, predicted seconds, error)"""
    return [(row, predicted(row), predicted(row) / row["seconds"] - 1) for row in found["rows"]]
