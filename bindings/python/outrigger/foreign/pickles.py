# SPDX-License-Identifier: Apache-2.0
"""Pickles as data. pickletools, which only takes a pickle apart, gives the opcodes, and what they say is done here with dictionaries,
lists and placeholders.

Nothing is imported and nothing of the pickle is called: GLOBAL makes a name (Global), REDUCE and NEWOBJ look the name up in a fixed table
of functions of this package and else make an Opaque, and BUILD notes the state. So what a pickle says cannot do more than take memory in
proportion to its length."""
from __future__ import annotations

import pickletools
from collections.abc import Callable, Mapping
from typing import Any

from .files import ForeignError

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "LONG4", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "SHORT_BINSTRING", "BINSTRING",
                     "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"})
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}
_IGNORED = frozenset({"PROTO", "FRAME"})
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_MARK = object()
Made = Callable[..., Any]


class Global:
    """The name of a class or function, and not that itself."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    @property
    def text(self) -> str:
        return f"{self.module}.{self.name}"

    def __repr__(self) -> str:
        return f"<the name {self.text}>"


class Opaque:
    """An object of a class that this package does not know: the class's name, what it was made from, and its state. Inert."""

    def __init__(self, made_by: Global, arguments: tuple[Any, ...]) -> None:
        self.made_by, self.arguments = made_by, arguments
        self.state: Any = None

    @property
    def name(self) -> str:
        return self.made_by.text

    def get(self, key: str, default: Any = None) -> Any:
        """An attribute of it, where its state is a dictionary."""
        return self.state.get(key, default) if isinstance(self.state, dict) else default

    def __repr__(self) -> str:
        return f"<a {self.name}, which is not read>"


def interpreted(data: bytes | memoryview, name: str, makers: Mapping[str, Made], persistent: Callable[[Any], Any]) -> Any:
    """What a pickle of protocol 2 to 5 holds. makers: by the name of a global, what it makes of its arguments. persistent: what a persistent id
    stands for. ForeignError: it is no such pickle, or an argument is not as it should be; name says whose it is."""
    machine = _Machine(name, makers, persistent)
    try:
        for opcode, argument, _ in pickletools.genops(bytes(data)):
            if opcode.name == "STOP":
                return machine.result()
            machine.do(opcode.name, argument)
    except ForeignError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, OverflowError, UnicodeError) as error:
        raise ForeignError(f"{name}: its pickle is damaged, or none that torch.save writes ({type(error).__name__}: {str(error)[:200]})") from None
    raise ForeignError(f"{name}: its pickle has no end")


def _key(value: Any) -> Any:
    """A value that may be in a dictionary's keys or in a set: its hash does not go down without end, as that of tuples in tuples may."""
    flat = (str, int, float, bool, bytes, type(None), Global, Opaque)
    if type(value) in flat or (type(value) is tuple and all(type(each) in flat for each in value)):
        return value
    raise TypeError(f"a {type(value).__name__} is the key of a dictionary, or in a set")


class _Machine:
    """The stack of one pickle, and its memo."""

    def __init__(self, name: str, makers: Mapping[str, Made], persistent: Callable[[Any], Any]) -> None:
        self._name, self._makers, self._persistent = name, makers, persistent
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def result(self) -> Any:
        (result,) = self._stack
        return result

    def do(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self._push(argument)
        elif name in _CONSTANTS:
            self._push(_CONSTANTS[name])
        elif name in _EMPTY:
            self._push(_EMPTY[name]())
        elif name in _TUPLES:
            count = _TUPLES[name]
            items = tuple(self._pop() for _ in range(count))
            self._push(items[::-1])
        elif name not in _IGNORED:
            method = getattr(self, f"_do_{name.lower()}", None)
            if method is None:
                raise ForeignError(f"{self._name}: its pickle has the opcode {name}, which torch.save does not write; it is not read")
            method(argument)

    def _push(self, value: Any) -> None:
        self._stack.append(value)

    def _pop(self) -> Any:
        value = self._stack.pop()
        if value is _MARK:
            raise ValueError("a mark is where a value should be")
        return value

    def _top(self) -> Any:
        if self._stack[-1] is _MARK:
            raise ValueError("a mark is where a value should be")
        return self._stack[-1]

    def _items(self) -> list[Any]:
        """What lies above the last mark, which goes."""
        items: list[Any] = []
        while (value := self._stack.pop()) is not _MARK:
            items.append(value)
        return items[::-1]

    # ---- Of the stack ----

    def _do_mark(self, _: Any) -> None:
        self._push(_MARK)

    def _do_pop(self, _: Any) -> None:
        self._stack.pop()

    def _do_pop_mark(self, _: Any) -> None:
        self._items()

    def _do_binput(self, key: int) -> None:
        self._memo[key] = self._top()

    _do_long_binput = _do_binput

    def _do_memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._top()

    def _do_binget(self, key: int) -> None:
        self._push(self._memo[key])

    _do_long_binget = _do_binget

    # ---- Containers ----

    def _do_tuple(self, _: Any) -> None:
        self._push(tuple(self._items()))

    def _do_list(self, _: Any) -> None:
        self._push(self._items())

    def _do_dict(self, _: Any) -> None:
        items = self._items()
        self._push(dict(zip(map(_key, items[::2]), items[1::2], strict=True)))

    def _do_frozenset(self, _: Any) -> None:
        self._push(frozenset(map(_key, self._items())))

    def _do_append(self, _: Any) -> None:
        value = self._pop()
        self._container(list).append(value)

    def _do_appends(self, _: Any) -> None:
        items = self._items()
        self._container(list).extend(items)

    def _do_additems(self, _: Any) -> None:
        items = self._items()
        self._container(set).update(map(_key, items))

    def _do_setitem(self, _: Any) -> None:
        value, key = self._pop(), self._pop()
        self._set((key, value))

    def _do_setitems(self, _: Any) -> None:
        items = self._items()
        if len(items) % 2:
            raise ValueError("a key has no value")
        self._set(*zip(items[::2], items[1::2]))

    def _set(self, *pairs: tuple[Any, Any]) -> None:
        if not isinstance(self._top(), Opaque):  # of a dictionary of a class that is not known
            self._container(dict).update((_key(key), value) for key, value in pairs)

    def _container(self, kind: type) -> Any:
        top = self._top()
        if isinstance(top, Opaque):
            return kind()
        if type(top) is not kind:
            raise TypeError(f"a {type(top).__name__} is where a {kind.__name__} should be")
        return top

    # ---- Objects ----

    def _do_global(self, argument: str) -> None:
        self._push(Global(*argument.split(" ", 1)))

    def _do_stack_global(self, _: Any) -> None:
        name, module = self._pop(), self._pop()
        if type(name) is not str or type(module) is not str:
            raise TypeError("the name of a global is no text")
        self._push(Global(module, name))

    def _do_reduce(self, _: Any) -> None:
        arguments, made_by = self._pop(), self._pop()
        if type(arguments) is not tuple:
            raise TypeError(f"the arguments of {made_by!r} are no tuple")
        if isinstance(made_by, Opaque):  # a function that was looked up by another one
            made_by = made_by.made_by
        if not isinstance(made_by, Global):
            raise TypeError(f"a {type(made_by).__name__} is called")
        make = self._makers.get(made_by.text)
        self._push(Opaque(made_by, arguments) if make is None else make(*arguments))

    def _do_newobj(self, _: Any) -> None:
        self._do_reduce(None)

    def _do_newobj_ex(self, _: Any) -> None:
        self._pop()
        self._do_reduce(None)

    def _do_build(self, _: Any) -> None:
        state = self._pop()
        if isinstance(self._top(), Opaque):
            self._top().state = state
        # An OrderedDict's attributes, such as a state_dict's _metadata, and what else is built upon is left out.

    def _do_binpersid(self, _: Any) -> None:
        self._push(self._persistent(self._pop()))
