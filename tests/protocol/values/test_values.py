"""Values are encoded and decoded without a change of value or type, and hostile text is harmless."""

from __future__ import annotations

import collections
import contextlib
import enum
import json
import pickle
import sys
from base64 import b64encode
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from computepool.protocol.values.values import DEPTH_MAX, decode, encode

_zones = st.sampled_from([None, UTC, timezone(timedelta(hours=-3, minutes=-30)), ZoneInfo("UTC")])
_text = st.text(st.characters(), max_size=20) | st.sampled_from(["$", "$bytes", "\ud83d\ude00", "\x00"])
_hashable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | _text
    | st.binary(max_size=20)
    | st.complex_numbers()
    | st.dates()
    | st.datetimes(timezones=_zones)
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)  # a signalling NaN cannot be hashed
    | st.uuids(),
    lambda inner: st.lists(inner, max_size=4).map(tuple) | st.frozensets(inner, max_size=4),
    max_leaves=6,
)
_dtypes = hnp.scalar_dtypes() | hnp.array_dtypes(max_size=3)
_arrays = hnp.arrays(dtype=_dtypes, shape=hnp.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=3))
_values = st.recursive(
    _hashable | st.binary(max_size=20).map(bytearray) | _arrays,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(_text, inner, max_size=4)
        | st.dictionaries(_hashable, inner, max_size=4)
        | st.sets(_hashable, max_size=4)
    ),
    max_leaves=12,
)


def type_name(value: object) -> str:
    return type(value).__name__


def same(left: Any, right: Any) -> bool:
    """Equal in value and type, NaN included."""
    if type(left) is not type(right):
        return False
    if isinstance(left, np.ndarray | np.generic):
        return bool(left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes())
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return same(list(left.items()), list(right.items()))
    if isinstance(left, set | frozenset):
        return same(sorted(map(encode, left)), sorted(map(encode, right)))
    if isinstance(left, float):
        return repr(left) == repr(right)
    if isinstance(left, complex):
        return same(left.real, right.real) and same(left.imag, right.imag)
    if isinstance(left, Decimal):
        return left.compare_total(right) == 0
    if isinstance(left, datetime | time):
        return bool((left == right) and left.fold == right.fold and left.utcoffset() == right.utcoffset())
    return bool(left == right)


@given(_values)
def test_a_decoded_value_is_equal_and_of_the_same_type(value: Any) -> None:
    text = encode(value)
    json.loads(text, parse_constant=pytest.fail)  # plain JSON: a browser can read it
    assert text.isascii()
    assert same(decode(text), value)


@pytest.mark.soak
@given(_values)
def test_encoding_a_decoded_value_gives_the_same_text(value: Any) -> None:
    assert encode(decode(encode(value))) == encode(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (7, "7"),
        (2**200, str(2**200)),
        (1.5, "1.5"),
        (float("nan"), '{"$float":"nan"}'),
        ("a", '"a"'),
        ([1, "x"], '[1,"x"]'),
        ({"a": [None]}, '{"a":[null]}'),
        ({"café": 1}, '{"caf\\u00e9":1}'),
        ({"$bytes": "x"}, '{"$dict":[["$bytes","x"]]}'),
        ({1: 2}, '{"$dict":[[1,2]]}'),
        ((1,), '{"$tuple":[1]}'),
        ({"b", "a"}, '{"$set":["a","b"]}'),
        (b"\x00", '{"$bytes":"AA=="}'),
        (date(2026, 1, 2), '{"$date":"2026-01-02"}'),
        (UUID(int=1), '{"$uuid":"00000000000000000000000000000001"}'),
        (np.zeros((1, 2), "<u1"), '{"$array":{"dtype":"|u1","shape":[1,2],"data":"AAA="}}'),
    ],
)
def test_the_format_is_fixed(value: Any, text: str) -> None:
    assert encode(value) == text
    assert same(decode(text), value)


@pytest.mark.parametrize(
    "value",
    [2**100_000, -(2**100_000), np.str_(""), np.bytes_(b""), np.zeros(3, "S5"), np.float32(0.1), Decimal("sNaN")],
    ids=type_name,
)
def test_extreme_values_are_preserved(value: Any) -> None:
    assert same(decode(encode(value)), value)


@pytest.mark.parametrize("zone", ["America", "x" * 300, "Nowhere/Land"])
def test_an_unknown_time_zone_is_dropped(zone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with the package `tzdata`, in which every name is a path."""
    for folder in (tmp_path / "tzdata" / "zoneinfo" / "America").parents[:2]:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
    (tmp_path / "tzdata" / "zoneinfo" / "America").mkdir()
    for name in [name for name in sys.modules if name.split(".")[0] == "tzdata"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    text = json.dumps({"$datetime": {"iso": "2020-01-01T00:00:00+00:00", "zone": zone}})
    try:
        assert decode(text) == datetime(2020, 1, 1, tzinfo=UTC)
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "tzdata"]:
            del sys.modules[name]


def test_a_named_time_zone_is_preserved() -> None:
    moment = datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=ZoneInfo("Europe/Berlin"))
    back = decode(encode(moment))
    assert back.tzinfo.key == "Europe/Berlin"
    assert (back, back.utcoffset(), back.fold) == (moment, moment.utcoffset(), 1)


class Colour(enum.Enum):
    RED = 1


class Odd:
    pass


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (collections.Counter("aab"), {"a": 2, "b": 1}),
        (collections.defaultdict(list, {"a": [1]}), {"a": [1]}),
        (collections.OrderedDict(a=1), {"a": 1}),
    ],
)
def test_a_subclass_becomes_its_base_type_unless_pickle_is_allowed(value: Any, plain: Any) -> None:
    assert same(decode(encode(value)), plain)
    assert same(decode(encode(value, allow_pickle=True), allow_pickle=True), value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (object(), "result: object cannot be sent"),
        ([0, 1, 2, {"model": Exception("x")}], "result[3].model: Exception cannot be sent"),
        ({"a b": {2: (object(),)}}, "result['a b'][2][0]: object cannot be sent"),
        ([np.array([None])], "result[0]: numpy array of dtype object cannot be sent"),
        (np.ma.masked_array([1], [True]), "MaskedArray cannot be sent"),
        (
            lambda: None,
            "function cannot be sent; make it plain values, arrays, bytes or a dataclass, or pass allow_pickle=True",
        ),
    ],
)
def test_an_unsupported_value_is_named_with_its_path(value: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:
        encode(value)
    assert message in str(caught.value)


def test_deep_and_circular_values_are_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(ValueError, match="contains itself"):
        encode(loop)
    deep: Any = ()
    for _ in range(DEPTH_MAX - 2):
        deep = (deep,)
    assert decode(encode(deep)) == deep


def test_pickle_must_be_allowed_by_both_sides() -> None:
    with pytest.raises(ValueError):
        encode(Odd())
    text = encode([Colour.RED], allow_pickle=True)
    assert "$pickle" in text
    with pytest.raises(ValueError, match="allow_pickle=True"):
        decode(text)
    assert decode(text, allow_pickle=True) == [Colour.RED]
    assert "$pickle" not in encode([1, (2,)], allow_pickle=True)


def test_a_value_that_cannot_be_pickled_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be pickled"):
        encode((item for item in ()), allow_pickle=True)


class Bomb:
    def __reduce__(self) -> Any:
        return pytest.fail, ("the pickle was loaded",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "NaN",
        '{"$what":1}',
        '{"$float":"x"}',
        '{"$bytes":"*"}',
        '{"$bytes":7}',
        '{"$set":[[]]}',
        '{"$dict":[[[],1]]}',
        '{"$dict":[1]}',
        '{"$datetime":"now"}',
        '{"$datetime":{"iso":"2026-01-01T00:00:00","zone":"../../etc/passwd"}}',
        '{"$decimal":"x"}',
        '{"$timedelta":[1e300,0,0]}',
        '{"$array":{"dtype":"|O","shape":[1],"data":"AAAAAAAAAAA="}}',
        '{"$array":{"dtype":[["a","|O"]],"shape":[1],"data":"AAAAAAAAAAA="}}',
        '{"$array":{"dtype":"<f8","shape":[1000000000,1000000000],"data":""}}',
        '{"$array":{"dtype":"<f8","shape":[-1,-1],"data":"AAAAAAAAAAA="}}',
        '{"$array":{"dtype":"<f8","shape":["x"],"data":""}}',
        '{"$scalar":{"dtype":"<f8","data":""}}',
        "[" * 100_000,
        '{"$tuple":[' * 600 + "1" + "]}" * 600,
        '[{"$pickle":"' + b64encode(pickle.dumps(Bomb())).decode() + '"}]',
    ],
)
def test_malformed_and_hostile_text_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):
        decode(text)


_TAGS = "tuple set dict bytes datetime date timedelta decimal uuid array scalar int float str complex pickle"
_keys = st.sampled_from([*(f"${tag}" for tag in _TAGS.split()), "a", "iso", "dtype", "shape", "data", "zone"])


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_keys, inner, max_size=3),
    )
)
def test_decoding_any_json_raises_nothing_but_value_error(tree: Any) -> None:
    with contextlib.suppress(ValueError):
        decode(json.dumps(tree))


def test_colliding_keys_and_expensive_numbers_are_refused() -> None:
    modulus = sys.hash_info.modulus
    keys = [{"$int": hex(modulus * number)} for number in range(1, 20_000)]
    for text in (
        json.dumps({"$set": keys}),
        json.dumps({"$frozenset": keys}),
        json.dumps({"$dict": [[key, 1] for key in keys]}),
        json.dumps({"$fraction": [hex(3**400_000), hex(7**200_000)]}),
    ):
        with pytest.raises(ValueError, match=r"same hash|too long"):
            decode(text)
    with pytest.raises(ValueError, match="Fraction of more than"):
        encode(Fraction(3**400_000, 7))
    assert decode(encode(set(range(5_000)))) == set(range(5_000))
    huge = Decimal("1e1000000000")
    assert decode(encode({huge: huge, 1: 2})) == {huge: huge, 1: 2}
