# SPDX-License-Identifier: Apache-2.0
"""Reads outrigger.h into plain records, for the generators of the other languages.

The header keeps to a small part of C99 (anonymous enums of literals, flat structs, opaque handles, one-line
callback types, prototypes). Anything outside of it is an error here, never a guess.
"""
import re
from dataclasses import dataclass, field


class HeaderError(Exception):
    pass


@dataclass(frozen=True)
class Type:
    """`const base *const *`: levels holds, for each star from the inside out, whether what it points to is const."""
    base: str
    levels: tuple = ()

    @property
    def c(self):
        text = self.base
        for index, const in enumerate(self.levels):
            if const:
                text = f"const {text}" if index == 0 else f"{text}const "
            text += " *" if index == 0 else "*"
        return text


def declaration(kind, name):
    """`const char *name`, `int32_t name`"""
    return f"{kind.c}{'' if kind.levels else ' '}{name}"


@dataclass
class Variable:
    name: str
    type: Type
    length: int = 0  # of an array; 0: not an array
    doc: str = ""

    @property
    def c(self):
        return declaration(self.type, self.name) + (f"[{self.length}]" if self.length else "")


@dataclass
class Constant:
    name: str
    value: object  # int or str
    unsigned: bool = False
    doc: str = ""


@dataclass
class Struct:
    name: str
    fields: list
    doc: str = ""


@dataclass
class Function:
    name: str
    result: Type
    parameters: list
    doc: str = ""

    @property
    def c(self):
        return declaration(self.result, self.name) + self.c_parameters

    @property
    def c_parameters(self):
        return f"({', '.join(each.c for each in self.parameters) or 'void'})"

    def c_pointer(self, name):
        """A pointer of this name to such a function."""
        return declaration(self.result, f"(*{name})") + self.c_parameters

    @property
    def waits(self):
        """For other ranks, at least in some cases."""
        return bool(re.search(r"\bCollective\b|\bMay\s+wait\.|; waits for", self.doc))

    @property
    def any_thread(self):
        """May run beside other calls on the same handle."""
        return bool(re.search(r"\bAny\s+thread\b", self.doc))


@dataclass
class Header:
    constants: list = field(default_factory=list)
    handles: list = field(default_factory=list)   # Struct without fields
    structs: list = field(default_factory=list)
    callbacks: list = field(default_factory=list)  # Function
    functions: list = field(default_factory=list)


SCALARS = {"int32_t", "uint32_t", "int64_t", "uint64_t", "uint8_t", "uint16_t", "size_t", "float", "double", "char", "void"}
TOKEN = re.compile(r"""/\*.*?\*/ | [A-Za-z_]\w* | \d\w* | [-{}()\[\];,*=] | "[^"]*" """, re.X | re.S)


def parse(text):
    header = Header()
    header.constants += macros(text)
    return Parser(tokens(without_directives(text)), header).run()


def macros(text):
    """#define OTR_NAME literal"""
    found = []
    for name, value in re.findall(r"^#define (OTR_\w+) (\d+|\"[^\"]*\")$", text, re.M):
        found.append(Constant(name, value[1:-1] if value[0] == '"' else int(value)))
    return found


def without_directives(text):
    """Drops preprocessor lines and what only a C++ compiler sees."""
    text = text.replace("\\\n", " ")
    kept, cplusplus = [], False
    for line in text.split("\n"):
        if line.startswith("#"):
            if line.startswith("#ifdef __cplusplus"):
                cplusplus = True
            elif line.startswith(("#else", "#endif")):
                cplusplus = False
        elif not cplusplus:
            kept.append(line)
    return "\n".join(kept)


def tokens(text):
    found, end = [], 0
    for match in TOKEN.finditer(text):
        gap = text[end:match.start()]
        if gap.strip():
            raise HeaderError(f"cannot read {gap.strip()!r}")
        found.append(match.group())
        end = match.end()
    if text[end:].strip():
        raise HeaderError(f"cannot read {text[end:].strip()!r}")
    return found


def comment_text(comment):
    lines = [re.sub(r"^\s*\*? ?", "", line).rstrip() for line in comment[2:-2].split("\n")]
    text = "\n".join(line.strip() if len(lines) == 1 else line for line in lines).strip()
    return "" if text.startswith("----") else text


class Parser:
    def __init__(self, token_list, header):
        self.tokens, self.at, self.header = token_list, 0, header
        self.known = set(SCALARS)

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self, expected=None):
        token = self.peek()
        if expected is not None and token != expected:
            near = " ".join(self.tokens[max(0, self.at - 6):self.at + 3])
            raise HeaderError(f"expected {expected!r} near {near!r}")
        self.at += 1
        return token

    def comment(self):
        """Skips comments and returns the last one's text."""
        text = ""
        while self.peek().startswith("/*"):
            text = comment_text(self.next())
        return text

    def run(self):
        doc = self.comment()
        while self.peek():
            token = self.next()
            if token == "enum":
                self.enum()
            elif token == "typedef":
                self.typedef(doc)
            elif token == "OTR_API":
                result = self.type()
                self.header.functions.append(self.function(self.next(), result, doc))
                self.next("OTR_NOEXCEPT")
            else:
                raise HeaderError(f"unexpected {token!r}")
            self.next(";")
            doc = self.comment()
        return self.header

    def enum(self):
        self.next("{")
        while self.peek() != "}":
            doc = self.comment()
            if self.peek() == "}":
                break
            name = self.next()
            self.next("=")
            sign = self.next() if self.peek() == "-" else ""
            literal = self.next()
            if self.peek() == ",":
                self.next()
            doc = self.comment() or doc
            self.header.constants.append(Constant(name, int(sign + literal.rstrip("u"), 0), literal.endswith("u"), doc))
        self.next("}")

    def typedef(self, doc):
        if self.peek() != "struct":
            result = self.type()
            self.next("(")
            self.next("*")
            name = self.next()
            self.next(")")
            self.header.callbacks.append(self.function(name, result, doc))
            self.known.add(name)
            return
        self.next("struct")
        name = self.next()
        self.known.add(name)
        if self.peek() == "{":
            self.header.structs.append(Struct(name, self.fields(), doc))
        else:
            self.header.handles.append(Struct(name, [], doc))
        self.next(name)

    def fields(self):
        self.next("{")
        found = []
        while self.peek() != "}":
            variable = self.variable()
            self.next(";")
            variable.doc = self.comment()
            found.append(variable)
        self.next("}")
        return found

    def function(self, name, result, doc):
        parameters = []
        self.next("(")
        if self.peek() == "void" and self.tokens[self.at + 1] == ")":
            self.next()
        while self.peek() != ")":
            parameters.append(self.variable())
            if self.peek() == ",":
                self.next()
        self.next(")")
        return Function(name, result, parameters, doc)

    def variable(self):
        kind, name, length = self.type(), self.next(), 0
        if self.peek() == "[":
            self.next()
            length = int(self.next())
            self.next("]")
        return Variable(name, kind, length)

    def type(self):
        const = self.peek() == "const"
        if const:
            self.next()
        base, levels = self.next(), []
        if base not in self.known:
            raise HeaderError(f"unknown type {base!r}")
        while self.peek() == "*":
            self.next()
            levels.append(const)
            const = self.peek() == "const"
            if const:
                self.next()
        return Type(base, tuple(levels))
