# SPDX-License-Identifier: Apache-2.0
"""docs/report/results.json: the one source of the page's figures."""
import json
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))
import machine  # noqa: E402

NAME = "results.json"


def read(folder):
    path = folder / NAME
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {"sections": {}}


def add(known, name, found, seconds, context, short):
    """A section that could not be measured now keeps the figures that it has."""
    if "missing" in found and "missing" not in known["sections"].get(name, {"missing": ""}):
        print(f"report: {name} keeps its earlier figures", flush=True)
        return
    described, versions = machine.describe(), machine.versions()
    known["sections"][name] = {
        **found, "date": time.strftime("%Y-%m-%d", time.gmtime()), "took": round(seconds), "short": short,
        "revision": described.pop("outrigger_revision"), "load_before": context.load,
        "versions": {"PyTorch": versions["torch"], **({} if context.peer_missing else {"DeepSpeed": versions["deepspeed"]})},
        "machine": {key: value for key, value in described.items() if key != "load_before"},
    }


def rounded(value):
    """Seven digits are enough, and keep the file small."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def text(value, margin=""):
    """Indented, with a line for whatever holds no dictionary: a change can be read."""
    inside = margin + " "
    if isinstance(value, dict) and any(map(_deep, value.values())):
        rows = [f"{inside}{json.dumps(key)}: {text(each, inside)}" for key, each in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + margin + "}"
    if isinstance(value, list) and any(isinstance(each, dict) for each in value):
        return "[\n" + ",\n".join(inside + text(each, inside) for each in value) + "\n" + margin + "]"
    return json.dumps(value, ensure_ascii=False)


def _deep(value):
    return isinstance(value, dict) or isinstance(value, list) and any(isinstance(each, dict) for each in value)


def write(folder, known):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(text(rounded(known)) + "\n", encoding="utf-8")
    unfinished.replace(path)
