# SPDX-License-Identifier: Apache-2.0
"""docs/numerics.md, from the measured numbers: every figure and every verdict in it is computed here."""

import textwrap
from typing import Any

from compare import METRICS, Comparison, compare, mean_of, vanished
from runs import rate_text
from variants import FLOAT32, GOAL, HOSTS, NEAREST, RANKS, VARIANTS, WAYS

Lines = list[str]


def play_titles(settings: dict[str, Any]) -> dict[str, str]:
    titles = {"gpt-scratch": "GPT, from scratch"}
    titles |= {f"gpt-tuned-{lr:g}": f"GPT, fine-tuned at {rate_text(lr)}" for lr in settings["gpt"]["tuned"]["lrs"]}
    titles["regression-scratch"] = "regression, from scratch"
    titles |= {f"regression-tuned-{lr:g}": f"regression, fine-tuned at {rate_text(lr)}" for lr in settings["regression"]["tuned"]["lrs"]}
    return titles


def percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share > 0.001 or share == 0 else f"{100 * share:.1g} %"


def table(head: Lines, rows: list[Lines]) -> Lines:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)] + [""]


def digits(c: Comparison) -> int:
    """Decimals at which the standard error shows."""
    decimals = 3
    while decimals < 7 and c.error > 0 and round(c.error, decimals) < 2 * 10.0**-decimals:
        decimals += 1
    return decimals


def noises(c: Comparison) -> float:
    return round(c.in_noise, 2 if abs(c.in_noise) < 10 else None) + 0


def in_noises(c: Comparison) -> str:
    """Signed, but for what rounds to nothing."""
    return f"{noises(c):+} σ" if noises(c) else "0 σ"


def spread(deviation: float) -> str:
    """Two digits of it at least, so that what is divided by it can be worked out again."""
    decimals = 4
    while decimals < 7 and 0 < deviation < 10.0 ** (1 - decimals):
        decimals += 1
    return f"{deviation:.{decimals}f}"


def delta(c: Comparison) -> str:
    """+0.0012 ± 0.0005 (0.3 σ); bold beyond the seeds' noise, starred if it is not chance."""
    places = digits(c)
    star = "\\*" if c.distinct else ""
    # Adding 0 makes a rounded −0 a +0.
    text = f"{round(c.difference, places) + 0:+.{places}f}{star} ± {c.error:.{places}f} ({in_noises(c)})"
    return text if c.matches else f"**{text}**"


def play_table(results: dict[str, Any], key: str) -> Lines:
    play, start = results["plays"][key], start_of(results, key)
    ways = "way" in play[FLOAT32][0]  # weights were compared, too
    head = ["states", "final", "mean", "held-out", *(f"Δ {label}" for label in METRICS.values()), "vanished"]
    head += ["gain"] if start is not None else []
    head += ["way", "distance", "unmoved"] if ways else []
    rows = []
    for name, variant in VARIANTS.items():
        comparisons = [compare(play, name, metric) for metric in METRICS]
        row = [variant.title, *(f"{c.value:.4f} ± {spread(c.deviation)}" for c in comparisons)]
        row += ["" if name == FLOAT32 else delta(c) for c in comparisons]
        row.append(percent(vanished(play, name)))
        if start is not None:
            row.append(percent(gain(play, name, start)))
        if ways:
            row += [f"{mean_of(play, name, key):.2f}" for key in ("way", "distance")]
            row.append(percent(mean_of(play, name, "unmoved")))
        rows.append(row)
    return table(head, rows)


def start_of(results: dict[str, Any], key: str) -> float | None:
    """The held-out loss on the new task before fine-tuning; None: the play is from scratch."""
    play, regime = key.split("-")[:2]
    return results["pretrained"][play]["held_out_next"] if regime == "tuned" else None


def gain(play: dict[str, Any], variant: str, start: float) -> float:
    """How much the held-out loss fell, as a share of float32's fall."""
    of_float32 = start - mean_of(play, FLOAT32, "held_out")
    return (start - mean_of(play, variant, "held_out")) / of_float32


def outside(results: dict[str, Any], variant: str) -> Lines:
    """Where a variant is not within the seeds' noise of float32."""
    found = []
    for key, title in play_titles(results["settings"]).items():
        start = start_of(results, key)
        for metric, label in METRICS.items():
            c = compare(results["plays"][key], variant, metric)
            if not c.matches:
                share = f", {percent(gain(results['plays'][key], variant, start))} of its gain" if start and metric == "held_out" else ""
                found.append(f"{title}: {label} loss {abs(c.difference):.2g} {'above' if c.difference > 0 else 'below'} "
                             f"float32's ({abs(noises(c))} σ{share})")
    return found


def more_than_chance(results: dict[str, Any], variant: str) -> str:
    """How often the difference is there for certain, be it small or not."""
    comparisons = [compare(results["plays"][key], variant, metric) for key in play_titles(results["settings"]) for metric in METRICS]
    signs = [c.difference > 0 for c in comparisons if c.distinct]
    return (f"{len(signs)} of the {len(comparisons)} differences are more than chance ({sum(signs)} above, {len(signs) - sum(signs)} below "
            "float32), however small")


def comparisons_of(results: dict[str, Any]) -> int:
    return len(play_titles(results["settings"])) * len(METRICS)


def short_answer(results: dict[str, Any]) -> Lines:
    of_bytes, total = results["memory"]["bytes"], comparisons_of(results)
    titles = play_titles(results["settings"])
    rows = []
    for name, variant in VARIANTS.items():
        cells = ["" if name == FLOAT32 else delta(compare(results["plays"][key], name, "held_out")) for key in titles]
        within = "" if name == FLOAT32 else f"{total - len(outside(results, name))} of {total}"
        rows.append([variant.title, f"{of_bytes[name]:.2f}", *cells, within])
    lines = table(["states", "resident bytes a parameter", *titles.values(), "within σ"], rows)
    lines += ["Differences of the held-out loss to float32 master and moments; the last column counts final, mean and held-out loss "
              "over all columns. The goal was that split masters and stochastic rounding match float32 within the seeds' noise, σ:", ""]
    for name in GOAL:
        found = outside(results, name)
        verdict = f"within it in all {total} comparisons." if not found else (
            f"within it in {total - len(found)} of {total} comparisons. Not: {'; '.join(found)}.")
        lines.append(f"- **{VARIANTS[name].title}**, {of_bytes[name]:.2f} bytes instead of {of_bytes[FLOAT32]:.2f}: {verdict} {more_than_chance(results, name)}.")
    for name in VARIANTS:
        if name in (*GOAL, FLOAT32, NEAREST):
            continue
        found = outside(results, name)
        verdict = "." if not found else f"; not: {'; '.join(found)}."
        lines.append(f"- {VARIANTS[name].title}, {of_bytes[name]:.2f} bytes: within it in {total - len(found)} of {total}{verdict}")
    lines += nearest_sentence(results)
    return [*lines, ""]


def nearest_sentence(results: dict[str, Any]) -> Lines:
    worse = [(compare(results["plays"][key], NEAREST, "held_out"), title) for key, title in play_titles(results["settings"]).items()]
    worse.sort(key=lambda entry: entry[0].in_noise)
    (least, where_least), (most, where_most) = worse[0], worse[-1]
    return [f"- {VARIANTS[NEAREST].title}: the held-out loss is between {noises(least):+} σ ({where_least}) and {noises(most):+} σ "
            f"({where_most}) away from float32's."]


def gpt_text(results: dict[str, Any]) -> Lines:
    settings, plays = results["settings"], results["plays"]
    of, model, before = settings["gpt"], settings["gpt"]["model"], results["pretrained"]["gpt"]
    run = plays["gpt-scratch"][FLOAT32][0]
    lines = [
        "## A GPT on characters", "",
        f"[The example in C](../c_api/examples/gpt) with {run['parameters']:,} parameters ({model['layers']} blocks of width "
        f"{model['width']}, {model['batch']} sequences of {model['context']} characters a step), on one rank.", "",
        "### From scratch", "",
        f"{of['scratch']['steps']} steps on Shakespeare's works, rate {of['scratch']['lr']:g} with warm-up and a cosine down to "
        f"{of['scratch']['lr'] * of['scratch']['final-lr']:g}.", "",
        "![Loss curves from scratch, and differences to float32](numerics/gpt-scratch.png)", "",
        *play_table(results, "gpt-scratch"),
        "### Fine-tuned", "",
        f"One model, float32 master, {of['pretrain']['steps']} steps on Shakespeare (held-out loss {before['held_out']:.3f}), "
        f"goes on for {of['tuned']['steps']} steps on Milton's Paradise Lost at a constant rate. All seeds begin with the same "
        "weights, so σ is the noise of the batches alone.", "",
        "![Loss curves of fine-tuning, and differences to float32](numerics/gpt-tuned.png)", "",
    ]
    for lr in of["tuned"]["lrs"]:
        lines += [f"At a rate of {rate_text(lr)}:", "", *play_table(results, f"gpt-tuned-{lr:g}")]
    lines += [f"Before, the held-out loss on Milton is {before['held_out_next']:.3f}; *gain* is how much of float32's fall from there "
              "was reached. *way*: how far the weights went along float32's way with the same seed, *distance*: in all directions, both as "
              "shares of float32's; *unmoved*: the share of weights that ended where they began. Stochastic rounding goes the way and "
              "strays to the sides, which is its noise.", ""]
    return lines


def regression_text(results: dict[str, Any]) -> Lines:
    of, before = results["settings"]["regression"], results["pretrained"]["regression"]
    lines = [
        "## A regression", "",
        "A network of three layers in NumPy learns what another one computes, with a little noise on it "
        "([regression.py](../scripts/numerics/regression.py)). There is no text whose entropy the loss could hide behind: what the "
        f"formats cost shows. {of['scratch']['steps']} steps at up to {of['scratch']['lr']:g}; fine-tuned for {of['tuned']['steps']} "
        f"steps on another target, near the first (held-out loss before: {before['held_out_next']:.3f}).", "",
        "![Error curves of the regression, and differences to float32](numerics/regression.png)", "",
        "From scratch:", "", *play_table(results, "regression-scratch"),
    ]
    for lr in of["tuned"]["lrs"]:
        lines += [f"Fine-tuned at {rate_text(lr)}:", "", *play_table(results, f"regression-tuned-{lr:g}")]
    return lines


def probe_text(results: dict[str, Any]) -> Lines:
    moment, drift = results["settings"]["second_moment"], results["settings"]["constant_gradient"]
    beta2 = 0.999
    faded = beta2 ** moment["after"]
    # v begins at 0: after `before` steps it is 1 − β2^before, and then it fades to the square of the smaller gradients.
    exact = faded + moment["shrink"] ** 2 * (1 - faded) / (1 - beta2 ** moment["before"])
    stochastic, longer = results["constant_gradient"]["bf16-stochastic"], results["constant_gradient"]["split-block8"]["way"] - 1
    lost = stochastic["vanished"] / stochastic["updates"]
    rows = []
    for name, variant in VARIANTS.items():
        of_drift = results["constant_gradient"][name]
        rows.append([variant.title, f"{results['second_moment'][name]['left']:.4f}", f"{of_drift['way']:.3f}",
                     percent(of_drift["vanished"] / of_drift["updates"])])
    return [
        "## Two questions with known answers", "",
        "![The second moment after gradients shrink, and a weight under a constant gradient](numerics/probes.png)", "",
        *table(["states", "second moment left", "way of the weight", "vanished"], rows),
        f"**Does the second moment shrink when gradients do?** After {moment['before']} steps gradients become {moment['shrink']:g} times as "
        f"large; {moment['after']} steps later {exact:.4f} of the second moment has to be left. Rounded to nearest a decrease of "
        "1 − β2 = 0.1 % is less than half a unit of bfloat16: it stays, and the steps stay as short as the old gradients made them.", "",
        f"**Does a weight follow small updates?** Weights of 1 and a constant gradient: every update is the rate, {rate_text(drift['lr'])}, and the "
        f"weight has to go {drift['lr'] * drift['steps']:g} in {drift['steps']} steps (way 1). Half a unit of bfloat16 below 1 is 2⁻⁹ = {2.0**-9:.4f}, so rounded "
        "to nearest the weight is 1 for ever. Rounded at random it keeps its value in most steps and moves a whole unit in the others: "
        f"{percent(lost)} of the updates vanish, and nothing is lost on average. 8-bit moments make the steps {100 * longer:.1f} % longer: a second "
        "moment that is right on average has an inverse root that is a little too large on average. Fine-tuning shows it as a way of more than 1.", "",
        "Tests hold both: `SecondMoment.ShrinksUnlessItIsRoundedToNearest` and `AdamTest.CountsUpdatesThatVanish` on the kernels "
        "([block8_test.cpp](../tests/kernels/block8_test.cpp), [adam_test.cpp](../tests/kernels/adam_test.cpp)), and on engines, in a form "
        "of seconds of this whole report, [test_numerics.py](../tests/numerics/test_numerics.py).", "",
    ]


def sending_text(results: dict[str, Any]) -> Lines:
    of, play = results["settings"]["sending"], results["sending"]
    rows, apart = [], []
    for way, title in WAYS.items():
        comparisons = [compare(play, way, metric) for metric in METRICS]
        deltas = ["" if way == FLOAT32 else delta(c) for c in comparisons]
        rows.append([title, *(f"{c.value:.5f} ± {spread(c.deviation)}" for c in comparisons), *deltas])
        apart += [f"{title}, {label}" for c, label in zip(comparisons, METRICS.values()) if not c.matches]
    verdict = "Every loss is within the seeds' noise, σ." if not apart else f"Beyond the seeds' noise, σ: {'; '.join(apart)}."
    return [
        "## Gradients and weights sent in 8 bits", "",
        "`zero_quantized_gradients` ([hosts.md](hosts.md#gradients-in-a-quarter-of-the-bytes)) and `zero_quantized_weights` ([hosts.md](hosts.md#weights-in-half-the-bytes)): the "
        f"network of the regression, from scratch, at stage 3 on {RANKS} ranks with batches of their own, {of['steps']} steps at a rate of {rate_text(of['lr'])} falling by half a "
        f"cosine; float32 weights and states, {len(results['settings']['seeds'])} seeds. As {HOSTS} hosts, what is rounded of gradients is each host's sum; on one level it is each "
        "rank's gradient. Losses are those of the weights that ranks see, the held-out one, too.", "",
        *table(["what ranks send", *METRICS.values(), *(f"Δ {label}" for label in METRICS.values())], rows),
        f"{verdict} The held-out loss is without the noise of the targets here.", "",
    ]


def what_follows(results: dict[str, Any]) -> Lines:
    plays, titles = results["plays"], play_titles(results["settings"])
    tuned = [key for key in titles if "tuned" in key]
    lost = [vanished(plays[key], NEAREST) for key in tuned]
    random = [vanished(plays[key], "bf16-stochastic") for key in tuned]
    ways = [mean_of(plays[key], NEAREST, "way") for key in tuned if key.startswith("gpt")]
    warnings = sorted({line for run in plays["gpt-scratch"][NEAREST] for line in run["warnings"]})
    return [
        "## What follows", "",
        "- `outrigger.states` rounds stochastically unless it is told otherwise; nobody gets rounding to nearest by that section.",
        "- DeepSpeed's keys mean nearest, so they get it, and the library says what it costs. The runs above were told:",
        *(f"  > {line.removeprefix('outrigger: ')}" for line in warnings),
        f"- Fine-tuning with a nearest bfloat16 master is the case to avoid: {percent(min(lost))} to {percent(max(lost))} of its updates vanish, and "
        f"the GPT's weights go {min(ways):.2f} to {max(ways):.2f} of float32's way.",
        f"- `vanished` in the step report is a warning of harm for rounding to nearest only. Stochastic rounding shows much the same share "
        f"({percent(min(random))} to {percent(max(random))} in the same runs) and loses nothing on average.",
        "- `split` first where memory allows it: its weight is a float32, bit by bit. A stochastic bfloat16 master takes 2 bytes less and pays "
        "with noise in the weights, whose size depends on the rate and not on the gradient: where the noise of the task is small beside it, "
        "or the rate stays high to the end, it can show, and the tables above are where to look for how much.", "",
    ]


def how(results: dict[str, Any]) -> Lines:
    seeds, large = len(results["settings"]["seeds"]), results["memory"]
    run = results["plays"]["gpt-scratch"][FLOAT32][0]
    return [
        "## How to read it", "",
        f"- {seeds} seeds: initial weights, batches and random rounding follow from the seed. *final* is the mean training loss of the last tenth "
        "of the steps, *mean* of all; *held-out* is taken after the last step. Values are means over seeds ± their standard deviation.",
        "- Δ is the difference to float32 with the same seed, its mean over seeds ± its standard error. σ is the standard deviation of float32's "
        "own loss over the seeds: the noise within which a format should stay. **Bold**: beyond σ. A star: 95 % sure not to be chance by "
        "Student's t, however small; with so many comparisons a few stars are chance.",
        "- Compute and gradients are bfloat16 everywhere, AdamW with β = (0.9, 0.999), clipping at 1; *vanished* is the share of updates after "
        "which the stored weight was the same.",
        f"- Bytes a parameter are the library's estimate, which equals its ledger, for GPT-2 XL's shapes ({large['parameters']:,} parameters): published "
        f"weight, gradient, master and moments. The small model above, whose tensors are padded, has {run['resident_bytes'] / run['parameters']:.2f} in "
        "its ledger with float32 states.",
        f"- These are small models and short runs, on one machine ({results['processor']}); another processor's matrix products round otherwise, and its "
        "curves differ within the seeds' noise. What large models do beyond that is not shown here.",
        "- For comparison, the example of DeepSpeed that these formats come from reports a final loss of 3.12 after 3.09 with float32, and a mean of "
        "2.90 after 2.78, from one run of each; without the noise of seeds that cannot be told from chance, nor from the harm shown here.", "",
    ]


def page(results: dict[str, Any]) -> str:
    lines = [
        "# Numerics of the formats", "",
        "<!-- Generated by make numerics from numerics/results.json; not to be edited. -->",
        "Master weights and moments in fewer bytes: what it does to training. [configuration.md](configuration.md#formats-and-rounding-of-the-states) "
        "says how to ask for each format, [contract.md](contract.md) how each rounds. `make numerics` measures again and writes this page, its "
        "pictures and [its numbers](numerics/results.json).", "",
        "## The short answer", "",
        *short_answer(results), *how(results), *gpt_text(results), *regression_text(results), *probe_text(results), *sending_text(results), *what_follows(results),
    ]
    return "\n".join(map(wrapped, lines)).rstrip("\n") + "\n"


def wrapped(line: str) -> str:
    """Paragraphs and lists as the other pages have them; tables, titles and pictures are one line."""
    if line[:1] in "|#!<":
        return line
    indent = "  > " if line.startswith("  > ") else "  " if line.startswith("- ") else ""
    return textwrap.fill(line, 140, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
