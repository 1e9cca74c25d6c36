# SPDX-License-Identifier: Apache-2.0
"""The pictures of the report. The same figures give the same file."""
import statistics
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

sys.path.append(str(Path(__file__).resolve().parents[1] / "demo"))
from picture import GREY, style  # noqa: E402

matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "outrigger", "font.size": 9})
COLOURS = ("#1b3a5c", "#0072b2", "#d1495b", "#e09f3e", "#2a9d8f", "#7b5ea7", "#7a8b3c", "#cc79a7")


def save(figure, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def mean_of(curves):
    return [statistics.fmean(values) for values in zip(*curves)]


def losses(curves, steps, path):
    """curves: name → seed → a curve of equal parts of the run. Below: how far they are from the first one's, over the seeds that both have."""
    figure, (above, below) = plt.subplots(2, 1, figsize=(8.5, 6), sharex=True, gridspec_kw={"height_ratios": (3, 2)})
    reference, reach = next(iter(curves.values())), []
    for place, (name, seeds) in enumerate(curves.items()):
        means = mean_of(seeds.values())
        x = [(k + 0.5) * steps / len(means) for k in range(len(means))]
        colour, line = COLOURS[place % len(COLOURS)], "--" if name.endswith("DeepSpeed") else "-"
        # They lie on one another: the later, the thinner.
        above.plot(x, means, line, color=colour, linewidth=max(1.0, 3.4 - 0.5 * place), label=f"{name} ({len(seeds)})")
        both = [seed for seed in seeds if seed in reference]
        if both:
            away = mean_of([a - b for a, b in zip(seeds[seed], reference[seed])] for seed in both)
            below.plot(x, away, line, color=colour, linewidth=1.3)
            reach += map(abs, away[len(away) // 10:])
    if max(reach, default=0) > 0:
        below.set_ylim(-1.15 * max(reach), 1.15 * max(reach))
    above.set_ylabel("loss, nats a byte")
    below.set_ylabel(f"difference to\n{next(iter(curves))}")
    below.set_xlabel("steps")
    above.set_xlim(0, steps)
    for ax in (above, below):
        style(ax)
    above.legend(frameon=False, title="configuration, library (seeds)", alignment="left")
    figure.align_ylabels()
    save(figure, path)


def bars(rows, unit, path):
    """rows: (name, [(series, value)]); a bar for each, of one length scale. Values stand beside them."""
    names = list(dict.fromkeys(series for _, values in rows for series, _ in values))
    height = sum(len(values) for _, values in rows) * 0.2 + 0.28 * len(rows)
    figure, ax = plt.subplots(figsize=(8.5, height + 0.7))
    y, ticks, largest = 0.0, [], max(value for _, values in rows for _, value in values)
    for name, values in rows:
        begin = y
        for series, value in values:
            ax.barh(y, value, height=0.85, color="#c9c9c9" if series == "published" else (COLOURS[0], COLOURS[2])[names.index(series)], label=series)
            ax.text(value + 0.01 * largest, y, f"{value:.2f}", va="center", fontsize=8, color=GREY)
            y += 1
        ticks.append(((begin + y - 1) / 2, name))
        y += 1.2
    ax.set_yticks([place for place, _ in ticks], [name for _, name in ticks])
    ax.invert_yaxis()
    ax.set_xlim(0, 1.12 * largest)
    ax.set_xlabel(unit)
    handles, labels = ax.get_legend_handles_labels()
    found = dict(zip(labels, handles))
    ax.legend([found[name] for name in names], names, frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=len(names))
    style(ax)
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)
    save(figure, path)
