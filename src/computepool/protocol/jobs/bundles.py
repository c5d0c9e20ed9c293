"""Bundles, which are jobs of several items: the encoding of their arguments and of their answers.

This module is copied into sandboxes next to values.py, so it uses only the standard library. An answer is an encoded list
with a pair for each item, so that readers of the job's result see the outcome of each item.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

from computepool.protocol.values import values

#: The first byte of a payload with several items. No pickle and no encoded list begins with it.
MARK = b"*"
#: The first part of an item's answer. The returned value follows, or the traceback of the exception.
VALUE, RAISED = 0, 1
#: Only from `read`, for an answer that cannot be decoded here. The error follows.
UNREADABLE = -1
#: The error of a bundle in which an item wrote files. Files belong to one item, so each item then runs by itself.
WROTE_OUTPUTS = "an item of the bundle wrote to the outputs folder"

_SIZE = struct.Struct(">I")
#: The type that follows each number. No text decodes to an Exception.
_PROPER: dict[int, type] = {VALUE: object, RAISED: str, UNREADABLE: Exception}
_NO_ANSWER = "the result does not answer every item"


def pack(items: Sequence[bytes]) -> bytes:
    return MARK + b"".join([_SIZE.pack(len(item)) + item for item in items])


def unpack(data: bytes) -> list[bytes]:
    """Raises ValueError for anything that `pack` could not have produced."""
    items = []
    place = len(MARK)
    while place < len(data):
        if place + _SIZE.size > len(data):
            raise ValueError("the bundle ends in the middle of an item")
        (size,) = _SIZE.unpack_from(data, place)
        place += _SIZE.size
        if place + size > len(data):
            raise ValueError("the bundle ends in the middle of an item")
        items.append(data[place : place + size])
        place += size
    if data[: len(MARK)] != MARK or not items:
        raise ValueError("this is not a bundle")
    return items


def value_answer(text: str) -> str:
    """The answer of an item that returned a value, given its encoding."""
    return f"[{VALUE},{text}]"


def raised_answer(traceback: str) -> str:
    return f"[{RAISED},{json.dumps(traceback)}]"


def answer(parts: Sequence[str]) -> str:
    return f"[{','.join(parts)}]"


def read(text: str, count: int, *, allow_pickle: bool) -> list[tuple[int, Any]]:
    """The outcome of each item: VALUE and the returned value, RAISED and a traceback, or UNREADABLE and the error.

    Raises ValueError if this is not an answer to `count` items. An unreadable outcome does not affect the others.
    """
    try:
        tree = values.decode(text, allow_pickle=allow_pickle)
    except Exception:  # noqa: BLE001 - a pickled value may raise anything, so each is decoded separately
        tree = [_read_one(part, allow_pickle) for part in _parts(text)]
    if type(tree) is not list or len(tree) != count:
        raise ValueError(_NO_ANSWER)
    for pair in tree:
        if type(pair) not in (list, tuple) or len(pair) != 2 or type(pair[0]) is not int:
            raise ValueError(_NO_ANSWER)
        if pair[0] not in _PROPER or not isinstance(pair[1], _PROPER[pair[0]]):
            raise ValueError(_NO_ANSWER)
    return [(kind, value) for kind, value in tree]


def each(text: str, count: int) -> list[tuple[int, str]] | None:
    """VALUE and the item's encoded value, or RAISED and the traceback. None if this is not an answer to `count` items.

    Decodes nothing; for code that only passes results on.
    """
    try:
        tree = _parts(text)
    except ValueError:
        return None
    if len(tree) != count:
        return None
    found: list[tuple[int, str]] = []
    for pair in tree:
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not int:
            return None
        if pair[0] == VALUE:
            found.append((VALUE, json.dumps(pair[1], separators=(",", ":"))))
        elif pair[0] == RAISED and type(pair[1]) is str:
            found.append((RAISED, pair[1]))
        else:
            return None
    return found


def _parts(text: str) -> list[Any]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(_NO_ANSWER) from None
    if type(tree) is not list:
        raise ValueError(_NO_ANSWER)
    return tree


def _read_one(part: Any, allow_pickle: bool) -> Any:
    if type(part) is not list or len(part) != 2 or part[0] != VALUE:
        return part
    try:
        return VALUE, values.decode(json.dumps(part[1]), allow_pickle=allow_pickle)
    except Exception as error:  # noqa: BLE001 - as above
        return UNREADABLE, error
