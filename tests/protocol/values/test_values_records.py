"""Objects are encoded as data; decoding them imports nothing and runs no code of their classes."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import json
import pickle
import sys
import types
from collections.abc import Iterator
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import pytest
from hypothesis import given, strategies as st

from computepool.protocol.values.values import DEPTH_MAX, Record, classes_in, decode, encode

T = TypeVar("T")


class Colour(enum.Enum):
    RED = (1, "r")
    BLUE = (2, "b")


class Level(enum.IntEnum):
    HIGH = 3


class Way(enum.Flag):
    LEFT = 1
    UP = 2


class Point(NamedTuple):
    x: float
    y: Any


@dataclass
class Plain:
    a: Any
    b: Any = 5
    seen: ClassVar[list[str]] = []
    scale: InitVar[int] = 1
    total: Any = field(init=False)

    def __post_init__(self, scale: int) -> None:
        Plain.seen.append("__post_init__")
        self.total = scale


@dataclass(frozen=True, slots=True, order=True)
class Frozen:
    a: Any
    b: Any = None


@dataclass(slots=True, kw_only=True)
class Below(Generic[T]):
    inside: T
    more: list[T] = field(default_factory=list)


@dataclass(frozen=True)
class Derived(Frozen):
    c: Any = ()

    class Nested:
        pass


@dataclass
class Closer:
    path: str

    def __del__(self) -> None:
        Plain.seen.append("__del__")


class Upper:
    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, instance: Any, owner: type) -> Any:
        return getattr(instance, self.name, "")

    def __set__(self, instance: Any, value: Any) -> None:
        Plain.seen.append("__set__")
        setattr(instance, self.name, value)


@dataclass
class WithDescriptor:
    word: Upper = Upper()


@dataclass
class Trouble(Exception):
    word: str


_leaves = (
    st.none()
    | st.integers()
    | st.text(max_size=5)
    | st.binary(max_size=5).map(bytearray)
    | st.binary(max_size=5).map(memoryview)
    | st.fractions()
    | st.decimals(allow_nan=False)
    | st.timezones()
    | st.sampled_from([Colour.RED, Colour.BLUE, Level.HIGH, Way.UP, range(3, -7, -2), Path("a/b"), Path()])
    | st.sampled_from([PurePosixPath("/x"), PureWindowsPath("c:\\x")])
)
_objects = st.recursive(
    _leaves,
    lambda inner: (
        st.builds(Plain, inner, inner)
        | st.builds(Frozen, inner, inner)
        | st.builds(Derived, inner, inner, inner)
        | st.builds(Below, inside=inner, more=st.lists(inner, max_size=2))
        | st.builds(Point, inner, inner)
        | st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3), inner, max_size=3)
        | st.dictionaries(st.builds(Frozen, st.integers(), st.sampled_from(Colour)), inner, max_size=2)
    ),
    max_leaves=10,
)


def typed(value: Any) -> Any:
    """The value with all types, because equality alone ignores many of them."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return type(value), [typed(getattr(value, item.name)) for item in dataclasses.fields(value)]
    if isinstance(value, tuple | list):
        return type(value), [typed(item) for item in value]
    if isinstance(value, dict):
        return dict, [(typed(key), typed(item)) for key, item in value.items()]
    return type(value), value


@pytest.mark.soak
@given(_objects)
def test_decoded_objects_are_equal_and_of_the_same_class(value: Any) -> None:
    text = encode(value)
    assert typed(decode(text)) == typed(value)
    assert encode(decode(text)) == text


@given(_objects)
def test_a_reader_without_the_classes_preserves_the_fields(value: Any) -> None:
    text = encode(value).replace(f'"{__name__}:', '"nowhere.at.all:')
    assert encode(decode(text)).count("nowhere.at.all:") == text.count("nowhere.at.all:") - text.count(
        '"$namedtuple"'
    ) - sum(text.count(f'"$enum":{{"class":"nowhere.at.all:{name}"') for name in ("Level",))
    assert "nowhere.at.all" not in sys.modules


def test_neither_constructor_nor_post_init_runs() -> None:
    value = Plain([1], 2, scale=7)
    Plain.seen.clear()
    back = decode(encode(value))
    assert (back, back.total, Plain.seen) == (value, 7, [])


def test_the_format_is_fixed() -> None:
    here = __name__
    assert encode(Frozen(1)) == f'{{"$dataclass":{{"class":"{here}:Frozen","fields":{{"a":1,"b":null}}}}}}'
    assert encode(Level.HIGH) == f'{{"$enum":{{"class":"{here}:Level","name":"HIGH","plain":3}}}}'
    assert encode(bytearray(b"\x01")) == '{"$bytearray":"AQ=="}'
    assert encode(Fraction(-1, 3)) == '{"$fraction":["-0x1","0x3"]}'


def test_a_record_is_read_only_data() -> None:
    text = '{"$dataclass":{"class":"m:C","fields":{"a":1,"record_class":"x","__class__":2,"keys":3}}}'
    record = decode(text)
    assert type(record) is Record
    assert (record.a, record["a"], record.record_class, record["record_class"]) == (1, 1, "m:C", "x")
    assert record["__class__"] == 2
    assert dict(record) == {"a": 1, "record_class": "x", "__class__": 2, "keys": 3}
    with pytest.raises(AttributeError):
        record.a = 2
    with pytest.raises(AttributeError):
        record.missing  # noqa: B018
    for same in (decode(text), copy.deepcopy(record), pickle.loads(pickle.dumps(record))):
        assert same == record
        assert hash(same) == hash(record)
    assert record != decode(text.replace("m:C", "m:D"))
    assert encode(record) == text
    assert repr(record).startswith("Record('m:C', a=1, ")


def test_a_reader_may_pass_classes_that_it_received_by_value() -> None:
    def made(flavour: str) -> type:
        namespace = {"__module__": "__main__", "flavour": flavour}
        return dataclasses.make_dataclass("Mine", [("x", int)], namespace=namespace)

    theirs, ours = made("theirs"), made("ours")
    ours.__module__ = theirs.__module__ = "__main__"
    text = encode([theirs(1)])
    assert type(decode(text)[0]) is Record
    assert type(decode(text, classes=[ours])[0]) is ours


def test_the_classes_in_a_value_are_found() -> None:
    value = {"k": [Plain(Frozen(Point(1, Colour.RED)), {Frozen(Level.HIGH): {1}}), Below(inside=(1,))], "n": 3}
    value["self"] = value
    assert set(classes_in(value)) == {Plain, Frozen, Point, Colour, Level, Below}


def test_fields_of_another_version_of_a_class_are_defaulted_or_refused() -> None:
    body = f'{{"$dataclass":{{"class":"{__name__}:%s","fields":{{%s}}}}}}'
    assert decode(body % ("Below", '"inside":1')) == Below(inside=1)
    assert decode(body % ("Frozen", '"a":1')) == Frozen(1)
    with pytest.raises(ValueError, match="another version"):
        decode(body % ("Frozen", '"a":1,"new":2'))
    with pytest.raises(ValueError, match="another version"):
        decode(f'{{"$enum":{{"class":"{__name__}:Colour","name":"GREEN","value":1}}}}')


def test_an_unsupported_field_is_named_with_its_path() -> None:
    with pytest.raises(ValueError, match=r"result\.a\[0\]\.b: object cannot be sent"):
        encode(Plain([Frozen(1, object())]))
    with pytest.raises(ValueError, match=r"return its .value"):
        encode(Way.LEFT | Way.UP)


def test_classes_that_would_run_code_become_records() -> None:
    Plain.seen.clear()
    for value in (WithDescriptor("x"), Trouble("y")):
        Plain.seen.clear()
        assert type(decode(encode(value))) is Record
        assert Plain.seen == []
    closer = Closer("/etc/passwd")
    text = encode(closer)
    back = decode(text)
    assert (type(back), back.path) == (Record, "/etc/passwd")
    del back
    assert Plain.seen == []
    del closer
    assert Plain.seen == ["__del__"]


class LazyModule(types.ModuleType):
    def __getattribute__(self, name: str) -> Any:
        raise AssertionError("looking at it loads it")


@pytest.fixture
def lazy() -> Iterator[None]:
    sys.modules["lazy_module"] = LazyModule("lazy_module")
    sys.modules["odd_module"] = LazyModule  # type: ignore[assignment]
    yield
    del sys.modules["lazy_module"], sys.modules["odd_module"]


@pytest.mark.usefixtures("lazy")
@pytest.mark.parametrize(
    "name",
    [
        "lazy_module:X",
        "odd_module:X",
        "antigravity:X",
        "os:system",
        "os:path.join",
        "builtins:object",
        f"{__name__}:Frozen.__class__",
        f"{__name__}:Derived.Nested",
        f"{__name__}:dataclass",
        f"{__name__}:sys",
        f"{__name__}:Record",
        f"{__name__}:",
        ":",
        "",
        "sys.modules:x",
        "subprocess:Popen",
    ],
)
def test_the_name_of_anything_but_a_dataclass_makes_a_record(name: str) -> None:
    before = set(sys.modules)
    for tag in ("$dataclass", "$namedtuple"):
        value = decode(json.dumps({tag: {"class": name, "fields": {"a": 1}}}))
        assert value == (Record(name, {"a": 1}) if tag == "$dataclass" else (1,))
    assert decode(json.dumps({"$enum": {"class": name, "name": "a", "value": 1}})).name == "a"
    assert set(sys.modules) == before


class Sneaky(Exception):
    pass


@dataclass(eq=False)
class BadKey:
    x: int

    def __hash__(self) -> int:
        raise Sneaky


def test_a_key_whose_hash_raises_is_a_value_error() -> None:
    text = encode([BadKey(1)])[1:-1]
    for tag in (f'{{"$set":[{text}]}}', f'{{"$dict":[[{text},1]]}}'):
        with pytest.raises(ValueError, match="Sneaky"):
            decode(tag)


@pytest.mark.parametrize(
    "body",
    [
        '{"$dataclass":1}',
        '{"$dataclass":{}}',
        '{"$dataclass":{"class":1,"fields":{}}}',
        '{"$dataclass":{"class":"a:b","fields":[1]}}',
        '{"$namedtuple":{"class":"a:b"}}',
        '{"$enum":{"class":"a:b","name":"x"}}',
        '{"$enum":{"class":"a:b","name":[],"value":1}}',
        '{"$fraction":["0x1","0x0"]}',
        '{"$fraction":["0x1"]}',
        '{"$range":["0x1","0x2","0x0"]}',
        '{"$zone":"../../etc/passwd"}',
        '{"$zone":"Nowhere/Land"}',
        '{"$zone":7}',
        '{"$timezone":[9,0,0]}',
        '{"$path":["os.system","x"]}',
        '{"$path":["Path",7]}',
        '{"$path":"x"}',
        '{"$dataclass":{"class":"' + "x" * 2000 + '","fields":{}}}',
        '{"$dataclass":{"class":"a:b","fields":{"a":' * 400 + "1" + "}}}" * 400,
    ],
)
def test_malformed_objects_are_value_errors(body: str) -> None:
    with pytest.raises(ValueError):
        decode(body)


def test_deep_objects_are_preserved_and_cycles_refused() -> None:
    value: Any = None
    for _ in range(DEPTH_MAX - 1):
        value = Frozen(value)
    assert decode(encode(value)) == value
    value = Plain(1)
    value.a = value
    with pytest.raises(ValueError, match="contains itself"):
        encode(value)


_texts = [encode(item) for item in (
    Plain(Frozen(1, Colour.RED)), {Frozen(1): Point(1, Path("a"))}, [Level.HIGH, Fraction(1, 3), range(4)],
    [Decimal("1.5"), bytearray(b"abc"), memoryview(b"abc")],
)]  # fmt: skip


@given(st.sampled_from(_texts), st.data())
def test_changed_texts_are_value_errors_or_values(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(at, min(len(text), at + 8)))
    other = data.draw(st.sampled_from(["", "0", '"', "[", "}", ",", "1e999", "null", '"$enum"', "-1", "$", "\\ud800"]))
    with contextlib.suppress(ValueError):
        decode(text[:at] + other + text[end:])
