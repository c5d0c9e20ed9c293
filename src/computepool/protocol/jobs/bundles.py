"""Several items in one job: how their arguments travel, and how their answers come back.

It is copied into sandboxes by itself, beside values.py, so it uses the standard library only. An answer is an encoded
list with a pair for each item, so that whoever reads the job's result with values.py sees what came of each.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

from computepool.protocol.values import values

#: First byte of a payload that holds several items. No pickle and no encoded list begins with it.
MARK = b"*"
#: First part of an item's answer: what it returned follows, or the traceback of what it raised.
VALUE, RAISED = 0, 1
#: Made by `read` alone, of an answer that is there and cannot be decoded here; the error follows.
UNREADABLE = -1
#: What a bundle fails with when one of its items left files: files belong to one item, so each runs by itself then.
WROTE_OUTPUTS = "an item of the bundle wrote to the outputs folder"

_SIZE = struct.Struct(">I")
#: What may follow each number; no text can hold an Exception.
_PROPER: dict[int, type] = {VALUE: object, RAISED: str, UNREADABLE: Exception}


def pack(items: Sequence[bytes]) -> bytes:
    return MARK + b"".join([_SIZE.pack(len(item)) + item for item in items])


def unpack(data: bytes) -> list[bytes]:
    """Raises ValueError for anything that `pack` would not have made."""
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
        raise ValueError("this is no bundle")
    return items


def returned(text: str) -> str:
    """The answer of an item whose encoded value is `text`."""
    return f"[{VALUE},{text}]"


def raised(traceback: str) -> str:
    return f"[{RAISED},{json.dumps(traceback)}]"


def answer(parts: Sequence[str]) -> str:
    return f"[{','.join(parts)}]"


def read(text: str, count: int, *, allow_pickle: bool) -> list[tuple[int, Any]]:
    """What came of each item: VALUE and what it returned, RAISED and a traceback, or UNREADABLE and why.

    Raises ValueError when it is no answer to `count` items. One that cannot be read spoils no other.
    """
    try:
        tree = values.decode(text, allow_pickle=allow_pickle)
    except Exception:  # noqa: BLE001 - a pickled value raises what it likes; each is tried by itself
        tree = [_read_one(part, allow_pickle) for part in _parts(text)]
    if type(tree) is not list or len(tree) != count:
        raise ValueError("the result does not answer every item")
    for pair in tree:
        if type(pair) not in (list, tuple) or len(pair) != 2 or type(pair[0]) is not int:
            raise ValueError("the result does not answer every item")
        if pair[0] not in _PROPER or not isinstance(pair[1], _PROPER[pair[0]]):
            raise ValueError("the result does not answer every item")
    return [(kind, value) for kind, value in tree]


def each(text: str, count: int) -> list[tuple[int, str]] | None:
    """VALUE and the item's own encoded value, or RAISED and the traceback. None: this is no answer to `count` items.

    Nothing is decoded, so it is for those who pass results on."""
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
        raise ValueError("the result does not answer every item") from None
    if type(tree) is not list:
        raise ValueError("the result does not answer every item")
    return tree


def _read_one(part: Any, allow_pickle: bool) -> Any:
    if type(part) is not list or len(part) != 2 or part[0] != VALUE:
        return part
    try:
        return VALUE, values.decode(json.dumps(part[1]), allow_pickle=allow_pickle)
    except Exception as error:  # noqa: BLE001 - as above
        return UNREADABLE, error
