"""Source lines that travel with functions, so that their tracebacks show code wherever they run.

They reach `linecache` of the process that unpickles the function, by calls of the standard library alone: a node needs
nothing for it.
"""

from __future__ import annotations

import linecache
import operator
import pickle
import types
from collections.abc import Iterator
from typing import Any

#: Of all lines that travel with one function and what it uses.
SOURCE_CHARS_MAX = 64 * 1024


class SourceLines:
    """Lines of functions, by file. Those that no longer fit are left out."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[int, str]] = {}
        self._left = SOURCE_CHARS_MAX

    def add(self, function: types.FunctionType) -> None:
        code = function.__code__
        last = max(line for part in code_objects(code) for *_, line in part.co_lines() if line)
        found = linecache.getlines(code.co_filename, function.__globals__)[:last]
        lines = self._lines.setdefault(code.co_filename, {})
        # The lines before it count as well: each of them is sent, as an empty one.
        size = sum(map(len, found[code.co_firstlineno - 1 :])) + max(0, len(found) - max(lines, default=0))
        if not found or size > self._left:
            return
        self._left -= size
        lines |= {number: found[number - 1] for number in range(code.co_firstlineno, len(found) + 1)}

    def along_with(self, pickled: bytes) -> bytes:
        """A pickle of the same thing that brings the lines, too."""
        texts = {name: _text(lines) for name, lines in self._lines.items() if lines}
        return pickle.dumps(_Sourced(pickled, texts), protocol=4) if texts else pickled


def _text(lines: dict[int, str]) -> str:
    return "".join(lines.get(number, "\n") for number in range(1, max(lines) + 1))


def code_objects(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code itself, and that of the functions and classes inside it."""
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from code_objects(part)


class _DeferredCall:
    """Is the result of a call once it is unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self._call


class _Sourced(_DeferredCall):
    def __init__(self, pickled: bytes, texts: dict[str, str]) -> None:
        cache = _DeferredCall(getattr, _DeferredCall(__import__, "linecache"), "cache")
        # No time of change: the interpreter does not look whether there is such a file.
        entries = {
            name: (len(text), None, _DeferredCall(str.splitlines, text, True), name)
            for name, text in texts.items()
        }
        parts = (_DeferredCall(dict.update, cache, entries), _DeferredCall(pickle.loads, pickled))
        super().__init__(operator.getitem, parts, 1)
