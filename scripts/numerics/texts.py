# SPDX-License-Identifier: Apache-2.0
"""The texts of the GPT: Shakespeare's works to learn from scratch, Milton's Paradise Lost to go on with."""

import sys
import tarfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "demo"))
from plays import clean, download, make_text  # noqa: E402

MILTON = "miltondata/texts/paradise_lost_(no_introduction)_gut.txt"
RARE = 20  # a character that one of the texts has less often becomes a blank in both


def write_with_one_alphabet(texts: dict[Path, str]) -> None:
    """The GPT numbers a text's characters in order, so weights fit another text only if its characters are the same."""
    counts = [Counter(text) for text in texts.values()]
    alphabet = {c for c in counts[0] if all(count[c] >= RARE for count in counts)}
    for path, text in texts.items():
        path.write_text("".join(c if c in alphabet else " " for c in text), encoding="ascii")


def shakespeare_and_milton(folder: Path) -> tuple[Path, Path]:
    archive = download(str(folder / "download"))
    plays, epic = folder / "shakespeare.txt", folder / "milton.txt"
    make_text(archive, str(plays))
    with tarfile.open(archive) as tar:
        name = next(name for name in tar.getnames() if name.endswith(MILTON))
        member = tar.extractfile(name)
        assert member is not None
        milton = clean(member.read()).encode("ascii", "replace").decode("ascii")
    write_with_one_alphabet({plays: plays.read_text(encoding="ascii"), epic: milton})
    return plays, epic


def generated(folder: Path) -> tuple[Path, Path]:
    """Two little languages, for a run of seconds that fetches nothing."""
    first, second = folder / "foxes.txt", folder / "bottles.txt"
    foxes = "".join(f"the quick brown fox number {i * 37 % 101} jumps over the lazy dog.\n" for i in range(800))
    bottles = "".join(f"over the wall jump {i * 53 % 97} lazy bottles; number them quickly.\n" for i in range(800))
    write_with_one_alphabet({first: foxes, second: bottles})
    return first, second
