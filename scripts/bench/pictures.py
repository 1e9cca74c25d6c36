# SPDX-License-Identifier: Apache-2.0
"""The report's pictures: one of bars for each case with rows, one of lines for each kind of curve."""

from svg import FAINT, GRID, INK, Axis, Drawing, number

MET, MISSED = "#0072b2", "#d55e00"
STYLES = [("#0072b2", "circle"), ("#d55e00", "square"), ("#009e73", "triangle"), ("#cc79a7", "circle")]
LOOP_STYLE = ("#888888", "")
AXES = {"parameters": "parameters in one tensor", "tensors": "tensors of the same size", "threads": "threads"}


def bars(name, rows, path):
    """Ratios with their 10–90 % band and the target's mark, on a logarithmic axis: twice as fast and half as fast look alike."""
    measured = [row for row in rows if row["ratio"] is not None]
    if not measured:
        return False
    left, right, line, head = 330, 150, 22, 62
    cases = list(dict.fromkeys(row["case"] for row in rows))
    height = head + sum(26 + line * sum(row["case"] == case for row in rows) for case in cases) + 48
    drawing = Drawing(960, height, f"{name}: ratios")
    low = min([0.8, *(min(row["ratio_p10"], row["target"]) * 0.93 for row in measured)])
    high = max([1.25, *(max(row["ratio_p90"], row["target"]) * 1.07 for row in measured)])
    axis = Axis(low, high, left, drawing.width - right)
    bottom = height - 42
    drawing.text(16, 26, name, size=16, bold=True)
    _key(drawing, 26)
    for tick in axis.ticks():
        drawing.text(axis(tick), bottom + 16, number(round(tick, 9)), "middle", 11, FAINT)
    drawing.text((axis.begin + axis.end) / 2, bottom + 34, "peer's time over ours", "middle", 12, FAINT)
    y = head
    for case in cases:
        drawing.text(16, y + 8, case, bold=True)
        y += 18
        own = [row for row in rows if row["case"] == case]
        for tick in axis.ticks():
            drawing.line(axis(tick), y - 4, axis(tick), y + line * len(own) - 3, GRID)
        for row in own:
            _bar(drawing, axis, y, row)
            y += line
        drawing.line(axis(1), y - line * len(own) - 4, axis(1), y - 3, INK)
        y += 8
    drawing.write(path)
    return True


def _key(drawing, y):
    x = drawing.width - 470
    for color, words, width in ((MET, "met", 60), (MISSED, "not met", 85)):
        drawing.box(x, y - 10, 12, 10, color, 0.75)
        drawing.text(x + 17, y, words, color=FAINT)
        x += width
    drawing.line(x, y - 12, x, y + 2, INK, 3)
    drawing.text(x + 8, y, "target", color=FAINT)
    drawing.line(x + 70, y - 5, x + 100, y - 5, INK, 1.5)
    drawing.text(x + 106, y, "10–90 % of the rounds", color=FAINT)


def _bar(drawing, axis, y, row):
    middle = y + 7
    peer = row["peer"]
    drawing.text(axis.begin - 10, middle + 4, peer, "end", 12 if len(peer) < 48 else 10, FAINT)
    if row["ratio"] is None:
        drawing.text(axis.end + 10, middle + 4, "not measured", color=FAINT)
        return
    color = MET if row["met"] else MISSED
    one, ratio = axis(1), axis(row["ratio"])
    drawing.box(min(one, ratio), middle - 7, abs(ratio - one), 14, color, 0.75)
    low, high = axis(row["ratio_p10"]), axis(row["ratio_p90"])
    drawing.line(low, middle, high, middle, INK, 1.5)
    for end in (low, high):
        drawing.line(end, middle - 3, end, middle + 3, INK, 1.5)
    target = axis(row["target"])
    drawing.line(target, middle - 9, target, middle + 9, INK, 3)
    drawing.text(axis.end + 10, middle + 4, _figure(row["ratio"]), bold=True, color=color)
    drawing.text(axis.end + 54, middle + 4, f"target {row['target']:.2f}", color=FAINT)


def _figure(value):
    return f"{value:.2f}" if value < 99.5 else f"{value:.0f}"


def lines(curve, panels, path):
    """ns a parameter over one quantity; a panel for each format."""
    panels = [panel for panel in panels if panel["points"]]
    names = list(dict.fromkeys(name for panel in panels for point in panel["points"] for name in point.get("ns_per_parameter", ())))
    if not names:
        return False
    drawing = Drawing(960, 440, f"optimizer step: time a parameter against {curve}")
    _legend(drawing, names)
    values = [each for panel in panels for point in panel["points"] for summary in point.get("ns_per_parameter", {}).values()
              for each in summary.values()]
    linear = curve == "threads"
    y = Axis(0 if linear else min(values) * 0.85, max(values) * 1.1, 372, 76, log=not linear)
    width = (drawing.width - 70) / len(panels)
    for index, panel in enumerate(panels):
        _panel(drawing, panel, names, y, 70 + width * index, 70 + width * (index + 1) - 24, index == 0)
    drawing.text(18, 224, "ns a parameter", "middle", 12, FAINT, turn=-90)
    drawing.write(path)
    return True


def _style(names, name):
    if "loop" in name:
        return LOOP_STYLE
    return STYLES[[each for each in names if "loop" not in each].index(name) % len(STYLES)]


def _legend(drawing, names):
    x = 70
    for name in names:
        color, shape = _style(names, name)
        drawing.line(x, 22, x + 26, 22, color, 2, "" if shape else "5 4")
        drawing.mark(x + 13, 22, shape, color)
        drawing.text(x + 32, 26, name)
        x += 62 + 6.4 * len(name)


def _panel(drawing, panel, names, y, left, right, first):
    xs = [point["x"] for point in panel["points"]]
    spread = max(xs) > min(xs)
    x = Axis(min(xs), max(xs) if spread else min(xs) * 2, left + 16, right - 16)
    drawing.text((left + right) / 2, 62, f"{panel['format']} weights and states, {panel['fixed']}", "middle", bold=True)
    for tick in y.ticks():
        drawing.line(left, y(tick), right, y(tick), GRID)
        if first:
            drawing.text(left - 6, y(tick) + 4, number(round(tick, 9)), "end", 11, FAINT)
    free_from = 0
    for at in xs:
        drawing.line(x(at), y.begin, x(at), y.begin + 5, FAINT)
        if x(at) >= free_from:
            drawing.text(x(at), y.begin + 19, number(at), "middle", 11, FAINT)
            free_from = x(at) + 36
    if not any("ns_per_parameter" in point for point in panel["points"]):
        drawing.text((left + right) / 2, (y.begin + y.end) / 2, "not measured", "middle", color=FAINT)
    drawing.line(left, y.begin, right, y.begin, FAINT)
    drawing.text((left + right) / 2, y.begin + 44, AXES[panel["curve"]], "middle", 12, FAINT)
    for name in reversed(names):  # ours on top
        color, shape = _style(names, name)
        points = [(x(point["x"]), point["ns_per_parameter"][name]) for point in panel["points"]
                  if name in point.get("ns_per_parameter", ())]
        if not points:
            continue
        band = [(at, y(each["p10"])) for at, each in points] + [(at, y(each["p90"])) for at, each in reversed(points)]
        drawing.area(band, color, 0.15)
        drawing.path([(at, y(each["median"])) for at, each in points], color, 2, "" if shape else "5 4")
        for at, each in points:
            drawing.mark(at, y(each["median"]), shape, color)
