# SPDX-License-Identifier: Apache-2.0
"""The memory of DeepSpeed's model of 6.86 billion parameters on four GPUs, by outrigger estimate, beside what was published."""
import json

from markdown import table, wrapped

TITLE = "Memory of the model with 6.86 billion parameters"
WIDTH, LAYERS, LENGTH, VOCABULARY, WORLD = 4096, 32, 512, 50257, 4
GIB = 2**30
LAYOUTS = ("outrigger", "deepspeed")
CONFIGURATIONS = {
    "baseline": {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}},
    "bf16_full": {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}},
}
TITLES = {"baseline": "float32 master and states", "bf16_full": "bfloat16 master and states"}
PUBLISHED = {"baseline": (25.74, 31.38), "bf16_full": (16.17, 18.93)}  # allocated and peak, of the example of PR #7700


def shapes():
    """The published model's tensors: attention and two layers with GELU in each block, biases, two norms, and an output layer with a bias."""
    found = {"tokens": [VOCABULARY, WIDTH], "places": [LENGTH, WIDTH], "output": [VOCABULARY, WIDTH], "output_bias": [VOCABULARY]}
    for layer in range(LAYERS):
        for name, out, into in (("qkv", 3 * WIDTH, WIDTH), ("attended", WIDTH, WIDTH), ("up", 4 * WIDTH, WIDTH), ("down", WIDTH, 4 * WIDTH)):
            found[f"{layer}.{name}"], found[f"{layer}.{name}_bias"] = [out, into], [out]
        for name in ("norm1", "norm2"):
            found[f"{layer}.{name}"], found[f"{layer}.{name}_bias"] = [WIDTH], [WIDTH]
    return found


def measure(context):
    model = context.work / "memory-model.json"
    model.write_text(json.dumps(shapes()), encoding="utf-8")
    found = {}
    for name, config in CONFIGURATIONS.items():
        path = context.work / f"memory-{name}.json"
        path.write_text(json.dumps(config), encoding="utf-8")
        text = context.run([context.build / "c_api/tools/outrigger", "estimate", model, "--config", path, "--world", WORLD, "--device-gib", 80,
                            "--host-gib", 512, "--json"], f"memory-{name}.log", only_output=True)
        given = json.loads(text)
        found[name] = {"parameters": given["parameters"], "device": {
            layout: {purpose: row for purpose, row in given["device"][layout].items() if row["peak_bytes"]} for layout in LAYOUTS}}
    return {"world": WORLD, "configurations": found}


def command(_figures):
    return f"outrigger estimate MODEL --config CONFIG --world {WORLD} --device-gib 80 --host-gib 512"


def total(figures, name, layout):
    """Resident and peak, GiB of a GPU."""
    row = figures["configurations"][name]["device"][layout]["total"]
    return row["resident_bytes"] / GIB, row["peak_bytes"] / GIB


def lines(figures):
    body = []
    for name, title in TITLES.items():
        ours, theirs, published = total(figures, name, "outrigger"), total(figures, name, "deepspeed"), PUBLISHED[name]
        for place, word in enumerate(("resident", "peak")):
            body.append([title, word if place else f"{word} (published: allocated)", f"{ours[place]:.2f}", f"{theirs[place]:.2f}", f"{published[place]:.2f}",
                         f"{published[place] - theirs[place]:+.2f}"])
    count = figures["configurations"]["baseline"]["parameters"]
    purposes = list(dict.fromkeys(purpose for each in figures["configurations"].values() for rows in each["device"].values() for purpose in rows if purpose != "total"))
    cells = [[purpose, *(f"{rows[purpose]['peak_bytes'] * figures['world'] / count:.2f}" if purpose in rows else "0"
                         for name in TITLES for rows in (figures["configurations"][name]["device"][layout] for layout in LAYOUTS))] for purpose in purposes]
    saved = [1 - total(figures, "bf16_full", layout)[place] / total(figures, "baseline", layout)[place] for layout in LAYOUTS for place in (0, 1)]
    return [
        wrapped(f"Estimated, not measured: {count:,} parameters (width {WIDTH}, {LAYERS} layers, rows of {LENGTH} tokens, a vocabulary of {VOCABULARY:,}) at stage 3 on {figures['world']} GPUs. GiB of one GPU. "
                "The published figures are called GB; the script that printed them divides by 2³⁰."), "",
        "![Memory of a GPU, estimated and published](report/memory.svg)", "",
        *table(["states", "", "Outrigger", "DeepSpeed's layout", "published, DeepSpeed on 4 × H100", "published less the layout"], body),
        "Peak bytes a parameter, all ranks together:", "",
        *table(["", "Outrigger, float32", "DeepSpeed, float32", "Outrigger, bfloat16", "DeepSpeed, bfloat16"], cells),
        wrapped(f"bfloat16 saves {saved[0]:.0%} of Outrigger's resident memory and {saved[1]:.0%} of its peak, {saved[2]:.0%} and {saved[3]:.0%} of DeepSpeed's layout; published are 37 % and 39.7 %."), "",
        wrapped("The estimate leaves out activations (here one row of 512 tokens, checkpointed), the logits and their gradient (512 × 50,257, in float32 103 MB each), weights that stage 3 has gathered at the "
                "moment, kernels' workspaces and what the allocator keeps beyond that. So the published figures are above the layout at rest. Its peak has a float32 or bfloat16 copy of all gradients at "
                "once; what was published is a little below that."), "",
        *(wrapped(beside(figures, name)) for name in TITLES), "", "A measurement needs four GPUs.", "",
    ]


def beside(figures, name):
    """Where Outrigger needs more, and where less."""
    (rest, peak), (their_rest, their_peak) = (total(figures, name, layout) for layout in LAYOUTS)
    words = [f"{abs(ours - theirs):.2f} GiB {'more' if ours > theirs else 'less'} {when}" for ours, theirs, when in ((rest, their_rest, "at rest"), (peak, their_peak, "at the peak"))]
    return (f"- {TITLES[name]}: Outrigger needs {words[0]} and {words[1]} than DeepSpeed's layout. It keeps buckets for gradients, which are there at rest, too "
            "(the largest tensors, embedding and output layer, set their size), and makes no copy of all gradients. A bfloat16 weight is its own master.")


def draw(figures, folder):
    import pictures
    rows = []
    for name, title in TITLES.items():
        for place, word in enumerate(("resident", "peak")):
            rows.append((f"{title},\n{word}", [("Outrigger, estimated", total(figures, name, "outrigger")[place]),
                                              ("DeepSpeed's layout, estimated", total(figures, name, "deepspeed")[place]), ("published", PUBLISHED[name][place])]))
    pictures.bars(rows, "GiB of a GPU, of four", folder / "memory.svg")
