"""Source lines sent with functions, so that tracebacks show code wherever they run.

Unpickling puts them into `linecache`, with calls of the standard library only, so a node needs nothing for it.
"""

from __future__ import annotations

import linecache
import operator
import pickle
import types
from collections.abc import Iterator
from typing import Any

#: Limit on the source lines of one function and everything that it uses.
SOURCE_CHARS_MAX = 64 * 1024


class SourceLines:
    """Lines of functions by file, up to the limit."""

    def __init__(self) -> None:
        self._lines: dict[str, dict[int, str]] = {}
        self._left = SOURCE_CHARS_MAX

    def add(self, function: types.FunctionType) -> None:
        code = function.__code__
        last = max(line for part in code_objects(code) for *_, line in part.co_lines() if line)
        found = linecache.getlines(code.co_filename, function.__globals__)[:last]
        lines = self._lines.setdefault(code.co_filename, {})
        # The lines before the function count as well: each is sent as an empty line.
        size = sum(map(len, found[code.co_firstlineno - 1 :])) + max(0, len(found) - max(lines, default=0))
        if not found or size > self._left:
            return
        self._left -= size
        lines |= {number: found[number - 1] for number in range(code.co_firstlineno, len(found) + 1)}

    def along_with(self, pickled: bytes) -> bytes:
        """A pickle of the same object that also contains the lines."""
        texts = {name: _text(lines) for name, lines in self._lines.items() if lines}
        return pickle.dumps(_Sourced(pickled, texts), protocol=4) if texts else pickled


def _text(lines: dict[int, str]) -> str:
    return "".join(lines.get(number, "\n") for number in range(1, max(lines) + 1))


def code_objects(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code itself, and the code of its inner functions and classes."""
    yield code
    for part in code.co_consts:
        if isinstance(part, types.CodeType):
            yield from code_objects(part)


def names_in(code: types.CodeType) -> set[str]:
    """Names of globals and attributes that it uses."""
    return {name for part in code_objects(code) for name in part.co_names}


def cell_content(cell: types.CellType, default: Any = None) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the variable has no value yet
        return default


class _DeferredCall:
    """Becomes the result of the call when unpickled."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self._call = function, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self._call


class _Sourced(_DeferredCall):
    def __init__(self, pickled: bytes, texts: dict[str, str]) -> None:
        cache = _DeferredCall(getattr, _DeferredCall(__import__, "linecache"), "cache")
        # Without a modification time, linecache does not check that the file exists.
        entries = {
            name: (len(text), None, _DeferredCall(str.splitlines, text, True), name) for name, text in texts.items()
        }
        parts = (_DeferredCall(dict.update, cache, entries), _DeferredCall(pickle.loads, pickled))
        super().__init__(operator.getitem, parts, 1)
