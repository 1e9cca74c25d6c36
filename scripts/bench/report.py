# SPDX-License-Identifier: Apache-2.0
"""build/bench/report.json and report.md."""

import json


def _number(value, form="{:.2f}"):
    return "—" if value is None else form.format(value)


def _span(summary):
    if summary is None:
        return "—"
    return f"{summary['median'] * 1e3:.1f} ({summary['p10'] * 1e3:.1f} – {summary['p90'] * 1e3:.1f})"


def _verdict(row):
    if row["met"] is None:
        return "not measured"
    return "yes" if row["met"] else "no"


def _table(rows):
    lines = [
        "| case | peer | ratio (p10 – p90) | target | met | ours, ms (p10 – p90) | peer, ms (p10 – p90) | rounds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        ratio = "not measured"
        if row["ratio"] is not None:
            ratio = f"**{row['ratio']:.2f}** ({row['ratio_p10']:.2f} – {row['ratio_p90']:.2f})"
        lines.append(
            f"| {row['case']} | {row['peer']} | {ratio} | ≥ {row['target']} | {_verdict(row)} | "
            f"{_span(row.get('ours_seconds'))} | {_span(row.get('peer_seconds'))} | {row.get('rounds', '—')} |"
        )
    return lines


def _numerics(numerics):
    facts = dict(numerics)
    parts = ["agree" if facts.pop("agree") else "DIFFER"]
    parts += [f"{key.replace('_', ' ')} {json.dumps(value)}" for key, value in facts.items()]
    return ", ".join(parts)


def _details(row):
    lines = [f"### {row['case']} — {row['peer']}", "", f"- Timed: {row['timed']}."]
    if "reason" in row:
        lines.append(f"- Not measured: {row['reason']}.")
    if "numerics" in row:
        lines.append(f"- Numbers, compared before timing: {_numerics(row['numerics'])}.")
    for key, text in (
        ("ours_gb_per_s", "ours moves {:.1f} GB/s"),
        ("state_bytes_per_parameter", "our moments take {:.3f} bytes a parameter"),
        ("ours_ns_per_parameter", "ours takes {:.3f} ns a parameter"),
        ("share_of_triad", "ours reaches {:.2f} of the triad's speed in the same rounds"),
        ("ceiling", "forward and backward alone, with nothing reduced or updated, would have the ratio {:.2f}: no engine can reach more"),
    ):
        if key in row:
            lines.append(f"- {text[0].upper()}{text[1:].format(row[key])}.")
    if "buffers" in row:
        lines.append(f"- Buffers used in turn: {row['buffers']}.")
    if "tokens_per_second" in row:
        lines.append("- Tokens a second, medians: " + ", ".join(f"{key} {value:.0f}" for key, value in row["tokens_per_second"].items()) + ".")
    if row.get("adapter_us"):
        lines.append("- Microseconds a step: " + ", ".join(f"{value:.1f} for {key}" for key, value in row["adapter_us"].items()) + ".")
    if "phases" in row:
        phases = ", ".join(f"{key[:-2]} {value * 1e3:.1f} ms" for key, value in row["phases"].items())
        lines.append(f"- Our rank 0, medians: {phases}.")
    if "memory" in row:
        speeds = ", ".join(f"{key.replace('_', ' ')} {value:.1f}" for key, value in row["memory"].items())
        lines.append(f"- Plain memory speed in the same rounds, GB/s: {speeds}.")
    return [*lines, ""]


def write(folder, machine, sides, rows):
    """Returns the table for the terminal."""
    table = _table(rows)
    report = {"machine": machine, "sides": sides, "rows": rows}
    (folder / "report.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    lines = [
        "# Benchmark report",
        "",
        "Ratio: the peer's time over ours, median over interleaved rounds; above 1 ours is faster. "
        "docs/benchmarks.md says how to read it.",
        "",
        *table,
        "",
        "## Machine and versions",
        "",
    ]
    lines += [
        f"- {key.replace('_', ' ')}: {value if isinstance(value, str) else json.dumps(value)}"
        for key, value in machine.items()
    ]
    lines += [f"- {name}: {json.dumps(facts)}" for name, facts in sides.items()]
    lines += ["", "## Rows", ""]
    for row in rows:
        lines += _details(row)
    (folder / "report.md").write_text("\n".join(lines))
    return "\n".join(table)


def terminal(rows):
    """One line a row."""
    lines = []
    for row in rows:
        ratio = (
            "not measured: " + row["reason"]
            if row["ratio"] is None
            else (
                f"{row['ratio']:.2f} x (target {row['target']}, {'met' if row['met'] else 'NOT met'}; ours "
                f"{row['ours_seconds']['median'] * 1e3:.1f} ms, peer {row['peer_seconds']['median'] * 1e3:.1f} ms)"
            )
        )
        lines.append(f"bench: {row['case']} | {row['peer']}: {ratio}")
    return "\n".join(lines)
