# SPDX-License-Identifier: Apache-2.0
"""build/bench/report.json, report.md and its pictures."""

import json

import pictures


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
    if "roofline" in row:
        lines.append(f"- Roofline: {_roofline(row)}.")
    if "products_gflop_per_s" in row:
        lines.append(f"- Matrix products: {_products(row)}.")
    if "forms_gb_per_s" in row:
        lines.append("- Forms of the loop, GB/s before timing: " + ", ".join(f"{key} {value:.1f}" for key, value in row["forms_gb_per_s"].items()) + ".")
    if "buffers" in row:
        lines.append(f"- Buffers used in turn: {row['buffers']}.")
    if "tokens_per_second" in row:
        lines.append("- Tokens a second, medians: " + ", ".join(f"{key} {value:.0f}" for key, value in row["tokens_per_second"].items()) + ".")
    if "gb_per_s" in row:
        lines.append("- GB/s, medians: " + ", ".join(f"{name} {value:.2f}" for name, value in row["gb_per_s"].items()) + ".")
    if "gathered_gb_per_s" in row:
        lines.append(f"- Gathered on each rank: {_speeds(row)}.")
    if row.get("adapter_us"):
        lines.append("- Microseconds a step: " + ", ".join(f"{value:.1f} for {key}" for key, value in row["adapter_us"].items()) + ".")
    if "costs" in row:
        lines.append(f"- The most in a step: {_costs(row)}.")
    if "phases" in row:
        phases = ", ".join(f"{key[:-2]} {value * 1e3:.1f} ms" for key, value in row["phases"].items())
        lines.append(f"- Our rank 0, medians: {phases}.")
    if "memory" in row:
        speeds = ", ".join(f"{key.replace('_', ' ')} {value:.1f}" for key, value in row["memory"].items())
        lines.append(f"- Plain memory speed in the same rounds, GB/s: {speeds}.")
    return [*lines, ""]


BEATEN = 1.05  # of the loop's speed: what is faster shows that the loop is no bound


def _roofline(row):
    facts = row["roofline"]
    text = (f"{facts['bytes_per_parameter']} bytes a parameter; ours moves {facts['ours_gb_per_s']:.1f} GB/s, a plain loop over as "
            f"many bytes {facts['loop_gb_per_s']:.1f} GB/s ({facts['loop_form']}): ours has {facts['share']:.2f} of it")
    if facts["share"] > BEATEN or facts.get("ceiling", 1) < 1 / BEATEN:
        text += "; a step beats the loop here, so it is no bound"
    elif "ceiling" in facts:
        text += f"; a step as fast as the loop would have the ratio {facts['ceiling']:.2f}"
        if facts["ceiling"] < row["target"]:
            text += ", so the speed of memory alone keeps this row below its target"
    return text


def _products(row):
    return ", ".join(f"{name} {value:.0f} GFLOP/s" for name, value in row["products_gflop_per_s"].items())


def _speeds(row):
    return ", ".join(f"{name} {value:.1f} GB/s" for name, value in row["gathered_gb_per_s"].items())


def _costs(row):
    return ", ".join(f"{key.replace('_', ' ')} {value:.0f}" for key, value in row["costs"].items())


def why(row):
    """What was measured that explains a row below its target; empty if nothing was."""
    parts = []
    if "products_gflop_per_s" in row:
        parts.append(f"bound by matrix products, three an iteration: {_products(row)} (ours and DeepSpeed's in float32, PyTorch's in bfloat16)")
    elif "roofline" in row:
        parts.append(_roofline(row))
    if "gb_per_s" in row:
        parts.append("GB/s, medians of the same rounds: " + ", ".join(f"{name} {value:.2f}" for name, value in row["gb_per_s"].items()))
    if "gathered_gb_per_s" in row:
        parts.append(f"gathered on each rank, medians of the same rounds: {_speeds(row)}")
    if "ceiling" in row:
        parts.append(f"forward and backward alone have the ratio {row['ceiling']:.2f}, which no engine can pass")
    if "share_of_triad" in row and "roofline" not in row:
        parts.append(f"ours has {row['share_of_triad']:.2f} of the speed of a plain triad in the same rounds")
    if row.get("adapter_us"):
        parts.append("microseconds a step: " + ", ".join(f"{value:.1f} for {key}" for key, value in row["adapter_us"].items()))
    if "more_ns" in row:
        parts.append(f"{row['more_ns']:.0f} ns more")
    if "costs" in row:
        parts.append(f"the most in a step: {_costs(row)}")
    if "phases" in row:
        parts.append("rank 0's medians: " + ", ".join(f"{key[:-2]} {value * 1e3:.1f} ms" for key, value in row["phases"].items()))
    return "; ".join(parts)


def _curve_table(curve):
    names = list(dict.fromkeys(name for point in curve["points"] for name in point.get("ns_per_parameter", ()))) or ["outrigger"]
    lines = [f"{curve['format']} weights and states, {curve['fixed']}; ns a parameter, median (p10 – p90):", "",
             "| " + " | ".join([curve["curve"], *names]) + " |", "|---" * (1 + len(names)) + "|"]
    for point in curve["points"]:
        if "reason" in point:
            cells = [f"not measured: {point['reason']}", *[""] * (len(names) - 1)][: len(names)]
        else:
            values = [point["ns_per_parameter"].get(name) for name in names]
            cells = ["—" if each is None else f"{each['median']:.3g} ({each['p10']:.3g} – {each['p90']:.3g})" for each in values]
        lines.append("| " + " | ".join([str(point["x"]), *cells]) + " |")
    lines += ["", *(f"- Missing: {name}: {reason}." for name, reason in curve["missing"].items())]
    return [*lines, ""]


def _curves(folder, curves):
    lines = ["## Curves of the optimizer step", ""] if curves else []
    for kind in dict.fromkeys(curve["curve"] for curve in curves):
        panels = [curve for curve in curves if curve["curve"] == kind]
        picture = f"curve_{kind}.svg"
        lines += [f"### Time a parameter against {kind}", ""]
        if pictures.lines(kind, {"here": panels}, folder / picture):
            lines += [f"![time a parameter against {kind}]({picture})", ""]
            for panel in panels:
                panel["picture"] = picture
        for panel in panels:
            lines += _curve_table(panel)
    return lines


def _row_pictures(folder, groups):
    lines = []
    for name, rows in groups.items():
        picture = f"rows_{name}.svg"
        if pictures.ratios(name, {"here": rows}, folder / picture):
            lines += [f"![{name}: ratios]({picture})", ""]
    return lines


def write(folder, machine, sides, groups, curves):
    """groups: the rows of each case by its name."""
    rows = [row for group in groups.values() for row in group]
    table = _table(rows) if rows else ["No rows."]
    row_pictures, curve_lines = _row_pictures(folder, groups), _curves(folder, curves)
    report = {"machine": machine, "sides": sides, "rows": rows, "curves": curves}
    (folder / "report.json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    lines = [
        "# Benchmark report",
        "",
        "Ratio: the peer's time over ours, median over interleaved rounds; above 1 ours is faster. "
        "docs/benchmarks.md says how to read it.",
        "",
        *table,
        "",
        *row_pictures,
        *curve_lines,
        "## Machine and versions",
        "",
    ]
    lines += [
        f"- {key.replace('_', ' ')}: {value if isinstance(value, str) else json.dumps(value)}"
        for key, value in machine.items()
    ]
    lines += [f"- {name}: {json.dumps(facts)}" for name, facts in sides.items()]
    lines += ["", "## Rows", ""] if rows else [""]
    for row in rows:
        lines += _details(row)
    (folder / "report.md").write_text("\n".join(lines))


def terminal(rows):
    """One line a row."""
    lines = []
    for row in rows:
        ratio = (
            "not measured: " + row["reason"]
            if row["ratio"] is None
            else (
                f"{row['ratio']:.2f} x (target {row['target']}, {'met' if row['met'] else 'NOT met'}; ours "
                f"{row['ours_seconds']['median'] * 1e3:.4g} ms, peer {row['peer_seconds']['median'] * 1e3:.4g} ms)"
            )
        )
        lines.append(f"bench: {row['case']} | {row['peer']}: {ratio}")
    return "\n".join(lines)


def terminal_curves(curves):
    """One line a curve: its ends, ours and the peers'."""
    lines = []
    for curve in curves:
        parts = []
        for point in curve["points"][:: max(1, len(curve["points"]) - 1)]:
            values = point.get("ns_per_parameter", {})
            figures = ", ".join(f"{name} {each['median']:.3g}" for name, each in values.items())
            parts.append(f"at {point['x']}: {figures or 'not measured: ' + point['reason']}")
        parts += [f"missing: {name}: {reason}" for name, reason in curve["missing"].items()]
        lines.append(f"bench: ns a parameter against {curve['curve']}, {curve['format']}, {curve['fixed']} | " + "; ".join(parts))
    return "\n".join(lines)
