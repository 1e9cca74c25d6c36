# SPDX-License-Identifier: Apache-2.0
"""Compares files of losses: a picture, and a table.

    python plot_loss.py --baseline logs/baseline_loss.csv --bf16 logs/bf16_full_loss.csv --output loss_comparison.png
"""
import argparse
import sys
from pathlib import Path

import losses

COLOURS = ("#1b3a5c", "#d1495b", "#2a9d8f", "#e09f3e", "#7b4b94", "#5c6b73")


def named(text):
    name, _, path = text.partition("=")
    if not name or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=CSV")
    return name, Path(path)


def smooth(values):
    """The mean over a fortieth of the run around each value, at the ends over as much as there is on both sides."""
    reach, sums = len(values) // 80, [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    result = []
    for place in range(len(values)):
        near = min(reach, place, len(values) - 1 - place)
        result.append((sums[place + near + 1] - sums[place - near]) / (2 * near + 1))
    return result


def draw(runs, output):
    """runs: (name, losses), the first of which the others are compared with."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    figure, (above, below) = pyplot.subplots(2, 1, figsize=(9, 6.5), dpi=110, sharex=True, gridspec_kw={"height_ratios": (3, 1)})
    _, reference = runs[0]
    for place, (name, values) in enumerate(runs):
        colour = COLOURS[place % len(COLOURS)]
        above.plot(values, color=colour, alpha=0.2, linewidth=0.6)
        above.plot(smooth(values), color=colour, linewidth=1.5, label=name)
        if place:
            below.plot(smooth([a - b for a, b in zip(values, reference)]), color=colour, linewidth=1.3)
    below.axhline(0, color=COLOURS[0], linewidth=1.3)
    above.set_ylabel("loss (faint: each step; line: smoothed)")
    below.set_ylabel(f"difference\nto {runs[0][0]}")
    below.set_xlabel("step")
    above.legend(frameon=False)
    for axes in (above, below):
        axes.grid(True, color="#e8e8e8", linewidth=0.7)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(output)
    pyplot.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baseline", metavar="CSV", type=Path, required=True)
    parser.add_argument("--bf16", metavar="CSV", type=Path, required=True)
    parser.add_argument("--more", metavar="NAME=CSV", type=named, action="append", default=[], help="a further run; may be repeated")
    parser.add_argument("--output", metavar="PNG", type=Path, default=Path("loss_comparison.png"))
    options = parser.parse_args()
    try:
        runs = [(name, losses.read(path)) for name, path in [("baseline", options.baseline), ("bf16", options.bf16), *options.more]]
        options.output.parent.mkdir(parents=True, exist_ok=True)
        draw(runs, options.output)
    except losses.LossFileError as error:
        sys.exit(f"plot_loss.py: {error}")
    except ModuleNotFoundError as error:
        sys.exit(f"plot_loss.py: {sys.executable} has no {error.name}; pip install matplotlib")
    print(losses.table(runs))
    print(f"\npicture: {options.output}")


if __name__ == "__main__":
    main()
