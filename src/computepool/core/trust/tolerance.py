"""Equality of two results within a tolerance.

Results are compared as they were sent: as JSON text (protocol/values/values.py), or as the output of a program. They come
from untrusted nodes, so no objects are built from them and no code is run. Results that cannot be parsed are equal only if
their texts are. Nothing is recursive, and the work is proportional to the length of the text.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64decode
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from computepool.core.trust.comparison import Tolerance

#: In characters; longer results are compared by digest.
VALUE_MAX: Final = 384 * 1024
PRINTED_MAX: Final = 256 * 1024
#: Integers with more bits must be identical.
INT_BITS_MAX: Final = 1_000
_DTYPES: Final = frozenset(
    f"{order}{kind}"
    for order in "<>|"
    for kind in ("f2", "f4", "f8", "c8", "c16", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
)
_DECIMALS: Final = Context(prec=50)
#: A number that stands alone, not in a name, a version or a hash. Possessive, so that no text causes backtracking.
_NUMBER: Final = re.compile(
    r"(?<![\w.])[-+]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][-+]?+[0-9]++)?+(?!\w|\.\w)", re.ASCII
)
_WHOLE: Final = re.compile(r"[-+]?[0-9]{1,300}", re.ASCII)


# values


def same_value(a: str, b: str, within: Tolerance) -> bool:
    """Compare two encoded values: containers by element, numbers within the tolerance, everything else exactly."""
    if a == b:
        return True
    if max(len(a), len(b)) > VALUE_MAX:
        return False
    try:
        todo = [(_decoder.decode(a), _decoder.decode(b))]
        while todo:
            ours, theirs = todo.pop()
            parts = _parts(ours, theirs)
            if parts is None and not _same_leaf(ours, theirs, within):
                return False
            todo += parts or ()
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(name: str) -> Any:
    raise ValueError(name)


_decoder: Final = json.JSONDecoder(parse_constant=_refuse)


def _parts(a: Any, b: Any) -> list[tuple[Any, Any]] | None:
    """The pairs of elements that must be equal for two similar containers to be equal; None for anything else."""
    if type(a) is not type(b):
        return None
    if type(a) is list:
        return list(zip(a, b, strict=True)) if len(a) == len(b) else None
    if type(a) is not dict or a.keys() != b.keys():
        return None
    tag = _tag(a)
    if tag == "$tuple":
        return _parts(a[tag], b[tag]) if type(a[tag]) is list else None
    if tag == "$dict":
        return _pairs(a[tag], b[tag])
    if tag in _CONTAINERS and type(a[tag]) is type(b[tag]) is dict and a[tag].keys() == b[tag].keys():
        return [(a[tag][key], b[tag][key]) for key in a[tag]]
    if tag == "$column" and _kind(a[tag]) == _kind(b[tag]) in _OPEN_KINDS and a[tag].keys() == b[tag].keys():
        return [(a[tag][key], b[tag][key]) for key in a[tag]]
    return None if tag else [(a[key], b[key]) for key in a]


#: Tags of objects and tables, whose parts are compared one by one. Names must be identical.
_CONTAINERS: Final = frozenset(("$dataclass", "$namedtuple", "$frame", "$series"))
#: Columns whose parts are values. In other columns (codes of categories, an index), close numbers are not equal.
_OPEN_KINDS: Final = ("nullable", "object")


def _kind(body: Any) -> str:
    kind = body.get("kind") if type(body) is dict else None
    return kind if type(kind) is str else ""


def _pairs(a: Any, b: Any) -> list[tuple[Any, Any]] | None:
    ours, theirs = _by_key(a), _by_key(b)
    if ours is None or theirs is None or ours.keys() != theirs.keys():
        return None
    return [(ours[key], theirs[key]) for key in ours]


def _by_key(pairs: Any) -> dict[str, Any] | None:
    """By the text of the key, because hashes of numbers can be made to collide on purpose."""
    if type(pairs) is not list or not all(type(pair) is list and len(pair) == 2 for pair in pairs):
        return None
    return {_text(key): item for key, item in pairs}


def _tag(tree: dict[str, Any]) -> str:
    """As protocol/values/values.py reads it."""
    return next((key for key in tree if key[:1] == "$"), "") if len(tree) == 1 else ""


def _text(tree: Any) -> str:
    return json.dumps(tree, sort_keys=True)


def _same_leaf(a: Any, b: Any, within: Tolerance) -> bool:
    ours, theirs = _number(a), _number(b)
    if ours is not None and theirs is not None:
        return same_number(ours, theirs, within)
    if type(a) is dict and type(b) is dict and a.keys() == b.keys():
        tag = _tag(a)
        if compare := _TAGGED.get(tag):
            try:
                return compare(a[tag], b[tag], within)
            except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError):
                pass
    return _text(a) == _text(b)


def _number(tree: Any) -> int | float | None:
    if type(tree) is int or type(tree) is float:
        return tree
    if type(tree) is not dict:
        return None
    tag = _tag(tree)
    if tag not in ("$float", "$int") or type(tree[tag]) is not str:
        return None
    try:
        return float(tree[tag]) if tag == "$float" else int(tree[tag], 16)
    except ValueError:
        return None


def same_number(a: int | float, b: int | float, within: Tolerance) -> bool:
    """NaN equals NaN; an infinity only equals itself."""
    if a == b:
        return True
    for number in (a, b):
        if isinstance(number, int) and number.bit_length() > INT_BITS_MAX:
            return False
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    if math.isinf(a) or math.isinf(b):
        return False
    return abs(a - b) <= max(within.absolute, within.relative * max(abs(a), abs(b)))


def _same_complex(a: Any, b: Any, within: Tolerance) -> bool:
    parts = [(float(ours), float(theirs)) for ours, theirs in zip(a, b, strict=True)]
    left, right = (np.array([complex(*side)]) for side in zip(*parts, strict=True))
    return bool(_close(left, right, within).all())


def _same_decimal(a: Any, b: Any, within: Tolerance) -> bool:
    left, right = Decimal(a), Decimal(b)
    if left.is_nan() or right.is_nan():
        return left.is_nan() and right.is_nan()
    if left.is_infinite() or right.is_infinite():
        return left == right
    larger = max(left.copy_abs(), right.copy_abs())
    bound = max(Decimal(within.absolute), _DECIMALS.multiply(Decimal(within.relative), larger))
    return _DECIMALS.subtract(left, right).copy_abs() <= bound


def _same_array(a: Any, b: Any, within: Tolerance) -> bool:
    if a["dtype"] != b["dtype"] or a.get("shape") != b.get("shape") or a["dtype"] not in _DTYPES:
        return _text(a) == _text(b)
    left, right = _array(a), _array(b)
    if left.shape != right.shape:
        return False
    if a.get("order") != b.get("order"):
        left, right = (_flat(found, body) for found, body in ((left, a), (right, b)))
    return bool(_close(left, right, within).all())


def _array(body: Any) -> NDArray[Any]:
    found = np.frombuffer(b64decode(body["data"], validate=True), np.dtype(body["dtype"]))
    return found.astype(found.dtype.newbyteorder("="))


def _flat(found: NDArray[Any], body: Any) -> NDArray[Any]:
    """In row-major order, even if the array was sent in column-major order."""
    order: Literal["C", "F"] = "F" if body.get("order") == "F" else "C"
    return found.reshape([int(side) for side in body["shape"]], order=order).ravel()


_TAGGED: Final[dict[str, Callable[[Any, Any, Tolerance], bool]]] = {
    "$complex": _same_complex,
    "$decimal": _same_decimal,
    "$array": _same_array,
    "$scalar": _same_array,
}


def _close(a: NDArray[Any], b: NDArray[Any], within: Tolerance) -> NDArray[np.bool_]:
    """`same_number` for arrays. Complex numbers are compared by the size of their difference."""
    if a.dtype.kind in "iu":
        difference = np.maximum(a, b).astype(np.uint64) - np.minimum(a, b).astype(np.uint64)
        return np.asarray(difference.astype(float) <= _bound(a.astype(float), b.astype(float), within))
    a, b = (side.astype(complex if side.dtype.kind == "c" else float) for side in (a, b))
    with np.errstate(all="ignore"):
        near = np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= _bound(a, b, within))
        return np.asarray(near | _same_special(a.real, b.real) & _same_special(a.imag, b.imag))


def _bound(a: NDArray[Any], b: NDArray[Any], within: Tolerance) -> NDArray[Any]:
    return np.asarray(np.maximum(within.absolute, within.relative * np.maximum(np.abs(a), np.abs(b))))


def _same_special(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    return np.asarray((a == b) | (np.isnan(a) & np.isnan(b)))


# output of programs


def same_text(a: str, b: str, within: Tolerance) -> bool:
    """Compare numbers that stand alone within the tolerance, and the text between them exactly."""
    if a == b:
        return True
    if max(len(a), len(b)) > PRINTED_MAX:
        return False
    ours, theirs = _NUMBER.finditer(a), _NUMBER.finditer(b)
    end_a = end_b = 0
    while True:
        left, right = next(ours, None), next(theirs, None)
        if left is None or right is None:
            return left is right and a[end_a:] == b[end_b:]
        if a[end_a : left.start()] != b[end_b : right.start()]:
            return False
        if not _same_word(left[0], right[0], within):
            return False
        end_a, end_b = left.end(), right.end()


def _same_word(a: str, b: str, within: Tolerance) -> bool:
    if a == b:
        return True
    left, right = (int(word) if _WHOLE.fullmatch(word) else float(word) for word in (a, b))
    return math.isfinite(left) and math.isfinite(right) and same_number(left, right, within)
