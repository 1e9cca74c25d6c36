# SPDX-License-Identifier: Apache-2.0
"""The page of all statuses, with the texts that come with them, from the header and the sources."""
import re

LITERALS = r'(?:"(?:[^"\\]|\\.)*"\s*)+'
# A text, or one made of pieces: "a " + value + " b".
TEXT = rf'{LITERALS}(?:\+[^";,]+\+\s*{LITERALS})*(?:\+)?'
FAIL = re.compile(rf"\b(?:fail|Error)\(\s*(OTR_E_\w+),\s*({TEXT})")


def plain(pieces):
    """The text of such pieces, {} where a value stands."""
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|\+[^";,]*\+|\+', pieces)
    return "".join(token[1:-1] if token[0] == '"' else "{}" for token in tokens).replace('\\"', '"')


def texts(root):
    """Status → the texts that the library writes with it, {} where a value stands."""
    found = {}
    for folder in ("core", "c_api/src", "plugins", "kernels"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".cpp", ".h"):
                continue
            for status, literals in FAIL.findall(path.read_text(encoding="utf-8")):
                text = plain(literals)
                if len(re.findall(r"[a-z]{2,}", re.sub(r"\{[^}]*\}", "", text))) > 2:  # more than a place and another function's text
                    found.setdefault(status, set()).add(text)
    return found


def page(root, model):
    written = texts(root)
    out = ["# Errors", "", "A call that fails returns one of these statuses, and `otr_last_error_message` gives one line: the value, the rule and the way out. "
           "Python raises `outrigger.Error`, Rust returns `Error`, Julia throws `OutriggerError`, each with both. `…` stands for a value.", ""]
    for constant in model.constants:
        if not re.match(r"OTR_(OK|E_\w+)$", constant.name):
            continue
        out += [f"## {constant.name} {{ #{constant.name} }}", "", f"{constant.value}. {constant.doc}".strip(), ""]
        for text in sorted(written.get(constant.name, ()), key=str.lower):
            shown = re.sub(r"\{[^}]*\}", "…", text.replace("{{", "\0").replace("}}", "\1")).replace("\0", "{").replace("\1", "}")
            out.append(f"- `{shown}`" if "`" not in shown else f"- {shown}")
        out.append("")
    return "\n".join(out)
