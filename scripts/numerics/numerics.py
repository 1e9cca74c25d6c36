# SPDX-License-Identifier: Apache-2.0
"""Trains two small models with every format of master weights and moments, and writes what came of it as docs/numerics.md."""

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

from measure import FULL, measure, measure_sending, prepare, tiny
from page import page

ROOT = Path(__file__).resolve().parents[2]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release", help="build folder, with examples and Python module")
    parser.add_argument("--docs", type=Path, default=ROOT / "docs", help="folder for the page")
    parser.add_argument("--work", type=Path, help="folder for the runs; default: numerics in the build folder")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="runs at a time")
    parser.add_argument("--tiny", action="store_true", help="runs of seconds, to see that all of it works")
    parser.add_argument("--again", action="store_true", help="no runs: page and pictures from the numbers there are")
    parser.add_argument("--sending", action="store_true", help="only the runs of what is sent in 8 bits; the other numbers stay")
    args = parser.parse_args()
    args.build = args.build.resolve()
    args.work = (args.work or args.build / "numerics").resolve()
    return args


def rounded(value: Any) -> Any:
    """Seven digits are enough, and keep the file small."""
    if isinstance(value, float):
        return float(f"{value:.7g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list) else value


def json_text(value: Any, margin: str = "") -> str:
    """Indented, but with a line for each run: a change can be read."""
    inside = margin + " "
    if isinstance(value, dict) and any(isinstance(each, dict) or is_list_of_dicts(each) for each in value.values()):
        rows = [f"{inside}{json.dumps(key)}: {json_text(each, inside)}" for key, each in value.items()]
        return "{\n" + ",\n".join(rows) + "\n" + margin + "}"
    if is_list_of_dicts(value):
        return "[\n" + ",\n".join(inside + json_text(each, inside) for each in value) + "\n" + margin + "]"
    return json.dumps(value, ensure_ascii=False)


def is_list_of_dicts(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(each, dict) for each in value)


def main() -> None:
    args = parse_arguments()
    begin = time.monotonic()
    folder = args.docs / "numerics"
    folder.mkdir(parents=True, exist_ok=True)
    numbers = folder / "results.json"
    if args.sending:
        prepare(args.build, args.work)
        results = json.loads(numbers.read_text(encoding="utf-8"))
        results["settings"]["sending"] = FULL["sending"]
        results["sending"] = rounded(measure_sending(results["settings"]))
        numbers.write_text(json_text(results) + "\n", encoding="utf-8")
    elif not args.again:
        settings = tiny(FULL) if args.tiny else FULL
        results = rounded(measure(settings, args.build, args.work, args.jobs))
        numbers.write_text(json_text(results) + "\n", encoding="utf-8")
    results = json.loads(numbers.read_text(encoding="utf-8"))
    from pictures import draw  # matplotlib takes a second to load, and only this needs it

    draw(folder, results)
    (args.docs / "numerics.md").write_text(page(results), encoding="utf-8")
    print(f"{args.docs / 'numerics.md'}, {(time.monotonic() - begin) / 60:.1f} minutes")


if __name__ == "__main__":
    main()
