"""Objects with a class: dataclasses, enum members and named tuples.

Part of the codec in values.py and copied into sandboxes with it: standard library only.

The text names a class, but reading it must not run code that the writer chose. So a class is never imported: it must be
passed by the reader, or belong to a module that is already loaded. Instances are created without `__new__`, `__init__` and
`__post_init__`, and their fields are set without `__setattr__` and properties. A class that runs code by itself
(`__del__`), or whose fields are descriptors, is treated as missing. If the class is missing, a `Record` with the same
fields arrives.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from types import MappingProxyType, MemberDescriptorType, ModuleType
from typing import Any, NoReturn

_Inner = Callable[[Any, str], Any]
_NAME_MAX = 1_000
#: Default factories that may be called for missing fields; any other could run arbitrary code.
_FACTORIES = (list, dict, set, frozenset, tuple, bytearray)
_PLAIN = (int, str, float, bytes, tuple)


class Record:
    """The fields of an object whose class is missing. Read only: `record.x`, or `record["x"]` for any name."""

    __slots__ = ("record_class", "record_fields")
    record_class: str  #: "module:Class" of the object
    record_fields: Mapping[str, Any]

    def __init__(self, record_class: str, fields: Mapping[str, Any]) -> None:
        object.__setattr__(self, "record_class", record_class)
        object.__setattr__(self, "record_fields", MappingProxyType(dict(fields)))

    def __getattr__(self, name: str) -> Any:
        if name[:2] != "__" and name not in Record.__slots__ and name in self.record_fields:
            return self.record_fields[name]
        raise AttributeError(f"{name!r} is not a field of this record")

    def __getitem__(self, name: str) -> Any:
        return self.record_fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.record_fields)

    def __len__(self) -> int:
        return len(self.record_fields)

    def keys(self) -> Any:
        """Makes `dict(record)` work."""
        return self.record_fields.keys()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("a record is read only")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("a record is read only")

    def __eq__(self, other: object) -> bool:
        if type(other) is not Record:
            return NotImplemented
        return self.record_class == other.record_class and self.record_fields == other.record_fields

    def __hash__(self) -> int:
        return hash((self.record_class, tuple(self.record_fields.items())))

    def __repr__(self) -> str:
        # Terminals show this, and the names may come from an untrusted writer.
        names = (name if name.isidentifier() else repr(name) for name in self.record_fields)
        fields = ", ".join(f"{name}={value!r}" for name, value in zip(names, self.record_fields.values(), strict=True))
        return f"Record({self.record_class!r}, {fields})"

    def __reduce__(self) -> tuple[type[Record], tuple[str, dict[str, Any]]]:
        return Record, (self.record_class, dict(self.record_fields))


def name_of(kind: type) -> str:
    """The name of a class in the text."""
    return f"{kind.__module__}:{kind.__qualname__}"


def fields_of(value: Any) -> list[Any] | None:
    """The contents of an object of these kinds; None for other values."""
    kind = type(value)
    if isinstance(value, Enum):
        return [value.value]
    if isinstance(value, tuple):
        return list(value) if type(getattr(kind, "_fields", None)) is tuple else None
    if kind is Record or not hasattr(kind, "__dataclass_fields__"):
        return None
    return [getattr(value, field.name, None) for field in dataclasses.fields(value)]


# ---------------------------------------------------------------- value → JSON tree
def pack(value: Any, inner: _Inner) -> dict[str, Any] | None:
    """None for other values. `inner(item, step)` packs the contents."""
    if isinstance(value, Enum):
        return _pack_enum(value, inner)
    if isinstance(value, tuple):
        return _pack_namedtuple(value, inner)
    return None


def pack_dataclass(value: Any, inner: _Inner) -> dict[str, Any] | None:
    """Called after the plain types, so a dataclass that is also a list or a dict arrives as that."""
    if type(value) is Record:
        name, fields = value.record_class, dict(value.record_fields)
    elif hasattr(type(value), "__dataclass_fields__"):
        name = name_of(type(value))
        found = ((field.name, getattr(value, field.name, _MISSING)) for field in dataclasses.fields(value))
        fields = {key: item for key, item in found if item is not _MISSING}
    else:
        return None
    return {"$dataclass": {"class": name, "fields": {key: inner(item, key) for key, item in fields.items()}}}


def _pack_enum(value: Enum, inner: _Inner) -> dict[str, Any] | None:
    if type(value)._member_map_.get(value.name) is not value:
        return None  # a combination of flags has no name
    body: dict[str, Any] = {"class": name_of(type(value)), "name": value.name}
    word = "plain" if isinstance(value, _PLAIN) else "value"
    return {"$enum": {**body, word: inner(value.value, "value")}}


def _pack_namedtuple(value: Any, inner: _Inner) -> dict[str, Any] | None:
    names = getattr(type(value), "_fields", None)
    if type(names) is not tuple or not all(type(name) is str for name in names) or len(names) != len(value):
        return None
    items = tuple.__iter__(value)
    fields = {name: inner(item, name) for name, item in zip(names, items, strict=True)}
    return {"$namedtuple": {"class": name_of(type(value)), "fields": fields}}


_MISSING = object()


# ---------------------------------------------------------------- JSON tree → value
class Reader:
    """Creates objects of the available classes: those passed, then those of loaded modules."""

    def __init__(self, classes: Iterable[type] = ()) -> None:
        self._passed = {name_of(kind): kind for kind in classes}

    def dataclass(self, body: dict[str, Any], inner: Callable[[Any], Any]) -> Any:
        name, fields = _named_fields(body, inner)
        kind = self._find(name)
        blank = None if kind is None else _blank(kind)
        if kind is None or blank is None:
            return Record(name, fields)
        declared = {field.name: field for field in dataclasses.fields(kind)}
        for key, item in fields.items():
            if key not in declared:
                raise ValueError(f"{name} has no field {key!r} here: it was written by another version of the class")
            object.__setattr__(blank, key, item)  # not the __setattr__ of the class, which may refuse or run code
        for key, field in declared.items():
            if key not in fields:
                _set_default(blank, field)
        return blank

    def namedtuple(self, body: dict[str, Any], inner: Callable[[Any], Any]) -> Any:
        name, fields = _named_fields(body, inner)
        kind = self._find(name)
        if kind is None or not issubclass(kind, tuple) or _runs_by_itself(kind):
            return tuple(fields.values())
        if _attribute(kind, "_fields") != tuple(fields):
            return tuple(fields.values())
        return tuple.__new__(kind, fields.values())

    def enum(self, body: dict[str, Any], inner: Callable[[Any], Any]) -> Any:
        name, member = _text(body["class"]), _text(body["name"])
        kind = self._find(name)
        if kind is not None and issubclass(kind, Enum):
            found = kind._member_map_.get(member)
            if found is not None:
                return found
            raise ValueError(f"{name} has no member {member!r} here: it was written by another version of the class")
        if "plain" in body:
            return inner(body["plain"])
        return Record(name, {"name": member, "value": inner(body["value"])})

    def _find(self, name: str) -> type | None:
        if name in self._passed:
            return self._passed[name]
        module_name, _, path = name.partition(":")
        module = sys.modules.get(module_name)
        # By type and without `__getattribute__`, so that lazy modules are not loaded by the look-up.
        if not path or not issubclass(type(module), ModuleType):
            return None
        names: Mapping[str, Any] = object.__getattribute__(module, "__dict__")
        found: Any = None
        for step in path.split("."):
            found = names.get(step)
            if not issubclass(type(found), type):
                return None
            names = type.__dict__["__dict__"].__get__(found)
        return found if name_of(found) == name else None


def _named_fields(body: dict[str, Any], inner: Callable[[Any], Any]) -> tuple[str, dict[str, Any]]:
    return _text(body["class"]), {_text(key): inner(item) for key, item in body["fields"].items()}


def _text(name: Any) -> str:
    if type(name) is not str or len(name) > _NAME_MAX:
        raise ValueError("the encoded value has an invalid name")
    return name


def _attribute(kind: type, name: str) -> Any:
    """Bypasses the metaclass, which may define `__getattr__`."""
    for base in type.__dict__["__mro__"].__get__(kind):
        names = type.__dict__["__dict__"].__get__(base)
        if name in names:
            return names[name]
    return None


def _runs_by_itself(kind: type) -> bool:
    return _attribute(kind, "__del__") is not None


def _blank(kind: type) -> Any:
    """An instance without fields; None if the class cannot be instantiated and filled without running its code."""
    fields = _attribute(kind, "__dataclass_fields__")
    if type(fields) is not dict or _runs_by_itself(kind) or _attribute(kind, "__getattribute__") is not _PLAIN_GET:
        return None
    for name in fields:
        found = _attribute(kind, name)
        if _attribute(type(found), "__set__") is not None and type(found) is not MemberDescriptorType:
            return None
    try:
        return object.__new__(kind)
    except TypeError:  # an exception, or abstract
        return None


_PLAIN_GET = object.__dict__["__getattribute__"]


def _set_default(instance: Any, field: dataclasses.Field[Any]) -> None:
    if field.default is not dataclasses.MISSING:
        object.__setattr__(instance, field.name, field.default)
        return
    for factory in _FACTORIES:
        if field.default_factory is factory:
            object.__setattr__(instance, field.name, factory())
