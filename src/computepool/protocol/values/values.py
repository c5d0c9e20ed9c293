"""Python values as JSON text, without pickle: plain JSON where it has the type, `{"$tag": …}` otherwise.

The format of results and of job states. This module and the other values_*.py are copied into sandboxes, so they use only
the standard library; NumPy, pandas and pyarrow are used only when a value needs them. A decoded value is equal to the
original and has its type. If the reader does not have the class of a dataclass, enum or named tuple, a `Record`, plain
value or tuple arrives instead. A subclass of a plain type (such as Counter) arrives as the plain type. If pickle is
allowed, anything that is not exactly of a listed type is pickled.

Decoding untrusted text is safe: nothing is imported, and only constructors of the listed types and `__hash__` and `__eq__`
of keys are called. A `{"$pickle": …}` value is refused unless the caller opts in.
"""

from __future__ import annotations

import importlib
import json
import math
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from computepool.protocol.values import values_arrow, values_records, values_tables
from computepool.protocol.values.values_arrow import b64 as _b64
from computepool.protocol.values.values_records import Record as Record  # noqa: PLC0414 - re-exported

#: Deeper values, and values that contain themselves, are refused, so that no text can exhaust the reader's stack.
DEPTH_MAX = 150

_HINT = "make it plain values, arrays, bytes or a dataclass, or pass allow_pickle=True"
_INT_PLAIN_BITS = 4096  # Python refuses to print or parse decimal integers of more than 4300 digits
_FRACTION_BITS_MAX = 2**18  # reducing a fraction takes quadratic time
_SAME_HASH_MAX = 1_000
_dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode


def encode(value: object, *, allow_pickle: bool = False) -> str:
    """The text of `value`. Raises a ValueError with the path and type of whatever cannot be sent."""
    if value is None:
        return "null"
    try:
        return _dumps(_pack(value, 0, allow_pickle))
    except _Unsupported as error:
        if allow_pickle:
            return _dumps({"$pickle": _b64(_pickle(value))})
        raise ValueError(f"result{error.path}: {error.problem}") from None
    except RecursionError:
        raise ValueError("result: is nested too deeply, or contains itself") from None


def decode(text: str, *, allow_pickle: bool = False, classes: Iterable[type] = ()) -> Any:
    """The value of `text`. Raises ValueError if it is malformed, or pickled without permission.

    `classes`: classes that the text may name in addition to those of loaded modules, such as a class sent by value.
    """
    try:
        tree = _decoder.decode(text)
        if '"$' not in text:
            return tree
        return _Unpacker(allow_pickle, classes, room=values_arrow.ElementBudget(len(text))).unpack(tree, 0)
    except ValueError:
        raise
    except RecursionError:
        raise ValueError("the encoded value is nested too deeply") from None
    except (TypeError, LookupError, ArithmeticError, AttributeError) as error:
        raise ValueError(f"the encoded value is malformed: {type(error).__name__}: {error}") from error


def classes_in(value: object) -> list[type]:
    """The dataclasses, enums and named tuples in `value`, which its reader needs to decode it."""
    found: dict[type, None] = {}
    seen: dict[int, object] = {}  # keeps the objects alive, so that ids are not reused
    todo = [value]
    while todo:
        item = todo.pop()
        if id(item) in seen:
            continue
        seen[id(item)] = item
        if isinstance(item, dict):
            todo += [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            todo += item
        fields = values_records.fields_of(item)
        if fields is not None:
            found[type(item)] = None
            todo += fields
    return list(found)


class _Unsupported(Exception):
    """Carries a problem up to the root. Each container adds its step to the path."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path = ""


# ---------------------------------------------------------------- value → JSON tree
def _pack(value: Any, depth: int, exact: bool) -> Any:
    """`exact` refuses subclasses, because pickle keeps their class."""
    pack = _PACKERS.get(type(value))
    if pack is None:
        return _pack_other(value, depth, exact)
    if depth > DEPTH_MAX:
        raise _Unsupported(f"is nested more than {DEPTH_MAX} deep, or contains itself")
    return pack(value, depth + 1, exact)


def _pack_other(value: Any, depth: int, exact: bool) -> Any:
    if depth > DEPTH_MAX:
        raise _Unsupported(f"is nested more than {DEPTH_MAX} deep, or contains itself")

    def inner(item: Any, step: str) -> Any:
        try:
            return _pack(item, depth + 1, exact)
        except _Unsupported as error:
            error.path = f".{step}{error.path}"
            raise

    try:
        packed = values_tables.pack(value, inner)
    except values_arrow.Unsendable as error:
        raise _Unsupported(str(error)) from None
    if packed is None and not exact:
        packed = values_records.pack(value, inner)
        if packed is None:
            packed = _pack_subclass(value, depth, inner)
    if packed is not None:
        return packed
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    hint = "return its .value" if isinstance(value, Enum) else _HINT
    raise _Unsupported(f"{kind} cannot be sent; {hint}")


def _pack_subclass(value: Any, depth: int, inner: Callable[[Any, str], Any]) -> Any:
    for plain, view in _PLAIN_VIEWS.items():
        if isinstance(value, plain):
            return _pack(view(value), depth, False)
    return values_records.pack_dataclass(value, inner)


#: The value as the base type sees it, without overridden methods such as __iter__ or __str__ (as in Enum).
_PLAIN_VIEWS: dict[type, Callable[[Any], Any]] = {
    dict: lambda value: dict(dict.items(value)),
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    list: lambda value: list(list.__iter__(value)),
    tuple: lambda value: tuple(tuple.__iter__(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    bytes: bytes.__bytes__,
}


def _pack_fraction(value: Fraction, depth: int, exact: bool) -> Any:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _FRACTION_BITS_MAX:
        raise _Unsupported(f"a Fraction of more than {_FRACTION_BITS_MAX} bits cannot be sent")
    return {"$fraction": [hex(value.numerator), hex(value.denominator)]}


def _pack_str(value: str, depth: int, exact: bool) -> Any:
    if value.isascii() or _is_unicode(value):
        return value
    return {"$str": _b64(value.encode("utf-8", "surrogatepass"))}


def _is_unicode(value: str) -> bool:
    """False for lone surrogates: JSON would join two of them into one character."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _pack_list(value: Any, depth: int, exact: bool) -> list[Any]:
    packed: list[Any] = []
    add = packed.append
    try:
        for item in value:
            add(_pack(item, depth, exact))
    except _Unsupported as error:
        error.path = f"[{len(packed)}]{error.path}"
        raise
    return packed


def _pack_dict(value: dict[Any, Any], depth: int, exact: bool) -> dict[str, Any]:
    if not all(type(key) is str and key[:1] != "$" and (key.isascii() or _is_unicode(key)) for key in value):
        return _pack_pairs(value, depth, exact)
    packed: dict[str, Any] = {}
    key = ""
    try:
        for key, item in value.items():
            packed[key] = _pack(item, depth, exact)
    except _Unsupported as error:
        error.path = (f".{key}" if key.isidentifier() else f"[{key!r}]") + error.path
        raise
    return packed


def _pack_pairs(value: dict[Any, Any], depth: int, exact: bool) -> dict[str, Any]:
    """A dict that JSON cannot represent: with keys that are not plain strings, or that look like tags."""
    pairs = []
    key: Any = None
    try:
        for key, item in value.items():
            pairs.append([_pack(key, depth, exact), _pack(item, depth, exact)])
    except _Unsupported as error:
        error.path = f"[{key!r}]"[:80] + error.path
        raise
    return {"$dict": pairs}


def _pack_set(tag: str) -> Callable[[Any, int, bool], Any]:
    # Sorted by text, so that equal sets have equal texts in every process, whatever its hash seed.
    return lambda value, depth, exact: {tag: sorted(_pack_list(value, depth, exact), key=_dumps)}


def _pack_moment(tag: str) -> Callable[[Any, int, bool], Any]:
    def pack(value: Any, depth: int, exact: bool) -> Any:
        packed = {"iso": value.isoformat()}
        if value.fold:
            packed["fold"] = 1
        if isinstance(value.tzinfo, ZoneInfo) and value.tzinfo.key:
            packed["zone"] = value.tzinfo.key
        return {tag: packed}

    return pack


def _pack_timezone(value: timezone, depth: int, exact: bool) -> Any:
    offset = value.utcoffset(None)
    name = value.tzname(None)
    parts = [offset.days, offset.seconds, offset.microseconds]
    return {"$timezone": parts if name == timezone(offset).tzname(None) else [*parts, name]}


def _pack_zone(value: ZoneInfo, depth: int, exact: bool) -> Any:
    if not value.key:
        raise _Unsupported("a time zone without a name cannot be sent")
    return {"$zone": value.key}


def _pack_memory(value: memoryview, depth: int, exact: bool) -> Any:
    if value.format != "B" or value.ndim != 1:
        raise _Unsupported("a memoryview of other than bytes cannot be sent; send an array")
    return {"$memoryview": _b64(value.tobytes())}


def _pack_path(kind: str) -> Callable[[Any, int, bool], Any]:
    return lambda value, depth, exact: {"$path": [kind, _pack_str(str(value), depth, exact)]}


_PACKERS: dict[type, Callable[[Any, int, bool], Any]] = {
    type(None): lambda value, depth, exact: None,
    bool: lambda value, depth, exact: value,
    int: lambda value, depth, exact: value if value.bit_length() <= _INT_PLAIN_BITS else {"$int": hex(value)},
    float: lambda value, depth, exact: value if math.isfinite(value) else {"$float": repr(value)},
    str: _pack_str,
    list: _pack_list,
    dict: _pack_dict,
    tuple: lambda value, depth, exact: {"$tuple": _pack_list(value, depth, exact)},
    set: _pack_set("$set"),
    frozenset: _pack_set("$frozenset"),
    bytes: lambda value, depth, exact: {"$bytes": _b64(value)},
    bytearray: lambda value, depth, exact: {"$bytearray": _b64(value)},
    complex: lambda value, depth, exact: {"$complex": [repr(value.real), repr(value.imag)]},
    datetime: _pack_moment("$datetime"),
    time: _pack_moment("$time"),
    date: lambda value, depth, exact: {"$date": value.isoformat()},
    timedelta: lambda value, depth, exact: {"$timedelta": [value.days, value.seconds, value.microseconds]},
    Decimal: lambda value, depth, exact: {"$decimal": str(value)},
    UUID: lambda value, depth, exact: {"$uuid": value.hex},
    Fraction: _pack_fraction,
    range: lambda value, depth, exact: {"$range": [hex(value.start), hex(value.stop), hex(value.step)]},
    memoryview: _pack_memory,
    timezone: _pack_timezone,
    ZoneInfo: _pack_zone,
    type(Path()): _pack_path("Path"),
    PurePosixPath: _pack_path("PurePosixPath"),
    PureWindowsPath: _pack_path("PureWindowsPath"),
}


# ---------------------------------------------------------------- JSON tree → value
class _Unpacker:
    def __init__(self, allow_pickle: bool, classes: Iterable[type], *, room: values_arrow.ElementBudget) -> None:
        self._allow_pickle = allow_pickle
        self.room = room
        reader = values_records.Reader(classes)
        self._objects: dict[str, Callable[[Any, Callable[[Any], Any]], Any]] = {
            "$dataclass": reader.dataclass,
            "$namedtuple": reader.namedtuple,
            "$enum": reader.enum,
        }

    def unpack(self, tree: Any, depth: int) -> Any:
        if type(tree) is list:
            return [self.unpack(item, depth + 1) for item in tree]
        if type(tree) is not dict:
            return tree
        if depth > 2 * DEPTH_MAX + 2:  # a tagged container is two levels of JSON
            raise ValueError("the encoded value is nested too deeply")
        if len(tree) == 1:
            ((tag, body),) = tree.items()
            if tag[:1] == "$":
                return self._tag(tag, body, depth + 1)
        return {key: self.unpack(item, depth + 1) for key, item in tree.items()}

    def _tag(self, tag: str, body: Any, depth: int) -> Any:
        leaf = _LEAVES.get(tag)
        if leaf is not None:
            return leaf(body)
        container = _CONTAINERS.get(tag)
        if container is not None:
            if type(body) is not list:  # a range or an array may be much longer than its text
                raise ValueError("the encoded container is not valid")
            return _collect(container, self.unpack(body, depth))
        of_class = self._objects.get(tag)
        if of_class is not None:
            return of_class(body, lambda item: self.unpack(item, depth + 1))
        if tag in values_tables.UNPACKERS:
            return values_tables.unpack(tag, body, _Read(self, depth + 1))
        if tag == "$pickle":
            if not self._allow_pickle:
                raise ValueError("the value is pickled, which can run code; pass allow_pickle=True to accept it")
            return _unpickle(b64decode(body))
        raise ValueError(f"the encoded value has an unknown tag {tag!r}; it was written by a newer version")


class _Read:
    """Reads the parts of a table, from one depth downwards."""

    def __init__(self, unpacker: _Unpacker, depth: int) -> None:
        self._unpacker, self._depth = unpacker, depth
        self.room = unpacker.room

    def __call__(self, tree: Any, /) -> Any:
        return self._unpacker.unpack(tree, self._depth)


def _collect(container: Callable[[Any], Any], items: list[Any]) -> Any:
    """Keys may belong to a class of the reader, whose `__hash__` and `__eq__` may raise anything."""
    try:
        if container is not tuple and len(items) > _SAME_HASH_MAX:
            _check_hashes(item[0] if container is dict else item for item in items)
        return container(items)
    except Exception as error:
        raise ValueError(f"the encoded value is malformed: {type(error).__name__}: {error}") from error


def _check_hashes(keys: Iterable[Any]) -> None:
    """Refuse numbers that were chosen to have equal hashes, because each would be compared with all others."""
    ((_, most),) = Counter(map(hash, keys)).most_common(1)
    if most > _SAME_HASH_MAX:
        raise ValueError(f"more than {_SAME_HASH_MAX} keys have the same hash")


def _unpack_fraction(body: list[Any]) -> Fraction:
    above, below = (int(number, 16) for number in body)
    if max(above.bit_length(), below.bit_length()) > _FRACTION_BITS_MAX:
        raise ValueError("the encoded fraction is too long to be reduced")
    return Fraction(above, below)


def _unpack_moment(kind: type[datetime] | type[time]) -> Callable[[Any], Any]:
    def unpack(body: dict[str, Any]) -> Any:
        value = kind.fromisoformat(body["iso"]).replace(fold=body.get("fold", 0))
        if "zone" not in body:
            return value
        try:
            return value.replace(tzinfo=ZoneInfo(body["zone"]))
        except (ZoneInfoNotFoundError, OSError):
            return value  # the zone is unknown on this machine, but the offset denotes the same moment

    return unpack


def _unpack_timezone(body: list[Any]) -> timezone:
    offset = timedelta(days=body[0], seconds=body[1], microseconds=body[2])
    return timezone(offset, body[3]) if len(body) > 3 else timezone(offset)


def _unpack_zone(body: str) -> ZoneInfo:
    try:
        return ZoneInfo(body)
    except (ZoneInfoNotFoundError, OSError):
        raise ValueError(f"this machine does not know the time zone {body!r}; install tzdata") from None


def _unpack_path(body: list[Any]) -> Any:
    kind, text = body
    if type(text) is dict:
        text = _LEAVES["$str"](text["$str"])
    return _PATHS[kind](text)


_PATHS: dict[str, Callable[[str], Any]] = {
    "Path": Path,
    "PurePosixPath": PurePosixPath,
    "PureWindowsPath": PureWindowsPath,
}


_LEAVES: dict[str, Callable[[Any], Any]] = {
    "$int": lambda body: int(body, 16),
    "$float": float,
    "$str": lambda body: b64decode(body).decode("utf-8", "surrogatepass"),
    "$bytes": lambda body: b64decode(body, validate=True),
    "$bytearray": lambda body: bytearray(b64decode(body, validate=True)),
    "$complex": lambda body: complex(float(body[0]), float(body[1])),
    "$datetime": _unpack_moment(datetime),
    "$time": _unpack_moment(time),
    "$date": date.fromisoformat,
    "$timedelta": lambda body: timedelta(days=body[0], seconds=body[1], microseconds=body[2]),
    "$decimal": Decimal,
    "$uuid": UUID,
    "$fraction": _unpack_fraction,
    "$range": lambda body: range(*(int(number, 16) for number in body)),
    "$memoryview": lambda body: memoryview(b64decode(body, validate=True)),
    "$timezone": _unpack_timezone,
    "$zone": _unpack_zone,
    "$path": _unpack_path,
}
_CONTAINERS: dict[str, Callable[[Any], Any]] = {"$tuple": tuple, "$set": set, "$frozenset": frozenset, "$dict": dict}


# ---------------------------------------------------------------- pickle, only when asked for
def _pickle(value: object) -> bytes:
    """With cloudpickle if available, because classes of the job's own script exist nowhere else."""
    try:
        module = importlib.import_module("cloudpickle")
    except ImportError:
        module = importlib.import_module("pickle")
    try:
        data: bytes = module.dumps(value)
    except Exception as error:  # __reduce__ may raise anything
        raise ValueError(f"the result cannot be pickled: {type(error).__name__}: {error}") from error
    return data


def _unpickle(data: bytes) -> Any:
    """Imported by name, because pickle must not be reachable from this module without the caller's consent."""
    return importlib.import_module("pickle").loads(data)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decoder = json.JSONDecoder(parse_constant=_refuse_constant)
