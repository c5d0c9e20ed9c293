"""When results are the same within a tolerance: the rule's properties, and what strangers may send."""

from __future__ import annotations

import json
import math
import time
from base64 import b64encode
from datetime import date
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from computepool.core.errors import BadRequest
from computepool.core.trust.comparison import RELATIVE_MAX, Tolerance, classes, parse
from computepool.core.trust.tolerance import PRINTED_MAX, VALUE_MAX, same_number, same_text, same_value
from computepool.protocol.values.values import encode

MILLIONTH = Tolerance(1e-6)
tolerances = st.builds(Tolerance, st.floats(0, RELATIVE_MAX), st.floats(0, 1e6)) | st.sampled_from(
    [MILLIONTH, Tolerance(0, 1e-3)]
)
numbers = st.integers() | st.floats()
leaves = (
    numbers
    | st.none()
    | st.booleans()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.complex_numbers()
    | st.decimals()
    | st.dates()
    | st.lists(st.floats(width=32), max_size=3).map(np.array)
    | st.integers(-(2**63), 2**63 - 1).map(np.int64)
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 3), inner, max_size=3)
        | st.sets(st.integers(0, 9), max_size=3)
    ),
    max_leaves=8,
)
#: Anything a stranger might send in place of a value: JSON that means nothing, tags with nonsense under them.
tags = st.sampled_from(
    ["$tuple", "$dict", "$array", "$scalar", "$float", "$int", "$decimal", "$complex", "$set", "$pickle", "$x"]
)
nonsense = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(tags | st.sampled_from(["dtype", "shape", "data", "a"]), inner, max_size=3)
        | st.fixed_dictionaries({"dtype": st.sampled_from(["<f8", "|V0", "<i8", "O"]), "shape": inner, "data": inner})
    ),
    max_leaves=8,
)


def same(a: object, b: object, within: Tolerance = MILLIONTH) -> bool:
    return same_value(encode(a), encode(b), within)


@given(values, values, tolerances, tolerances)
def test_it_is_reflexive_and_symmetric_and_more_tolerance_is_more_tolerant(
    a: object, b: object, one: Tolerance, other: Tolerance
) -> None:
    assert same(a, a, one)
    assert same(a, b, one) == same(b, a, one)
    wider = Tolerance(max(one.relative, other.relative), max(one.absolute, other.absolute))
    assert same(a, b, wider) or not same(a, b, one)


@pytest.mark.soak
@given(numbers, numbers, tolerances)
def test_numbers_are_the_same_wherever_they_stand(a: float, b: float, within: Tolerance) -> None:
    answer = same_number(a, b, within)
    for wrap in (lambda x: [x], lambda x: {"k": (x, "y")}, lambda x: {1: x}, lambda x: x):
        assert same(wrap(a), wrap(b), within) == answer
    if all(type(x) is float and math.isfinite(x) for x in (a, b)):
        assert same_text(f"loss={a!r}, done", f"loss={b!r}, done", within) == answer
        assert same(np.array([a, 1.0]), np.array([b, 1.0]), within) == answer


@given(st.floats(1e-300, 1e300), st.floats(0.05, RELATIVE_MAX), st.floats(-1.5, 1.5))
def test_at_its_edge_it_is_symmetric_everywhere(a: float, relative: float, share: float) -> None:
    b, within = a * (1 + share * relative), Tolerance(relative)
    answer = same_number(a, b, within)
    assert same_number(b, a, within) == answer
    assert same(np.array([a]), np.array([b]), within) == same(np.array([b]), np.array([a]), within) == answer
    if abs(share) < 0.99:
        assert answer


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), tolerances)
def test_whole_numbers_of_arrays_are_told_apart_to_the_last(a: int, b: int, within: Tolerance) -> None:
    difference = abs(a - b)
    bound = max(within.absolute, within.relative * max(abs(a), abs(b)))
    if abs(difference - bound) > 1e-9 * bound:
        assert same(np.array([a]), np.array([b]), within) == (difference <= bound)


@given(nonsense, nonsense, tolerances)
def test_nonsense_is_compared_without_an_error(a: Any, b: Any, within: Tolerance) -> None:
    left, right = json.dumps(a), json.dumps(b)
    assert same_value(left, left, within)
    assert same_value(left, right, within) == same_value(right, left, within)
    assert same_text(left, left, within)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1.0, 1.0000001),
        (1, 1.0000001),
        (NAN, NAN),
        (INF, INF),
        ([1.0, NAN], [1.0000001, NAN]),
        ({"b": 1.0, "a": 2.0}, {"a": 2.0000001, "b": 1.0}),
        ({1: 1.0, 2: 2.0}, {2: 2.0000001, 1: 1.0}),
        (Decimal("1.0"), Decimal("1.0000001")),
        (1 + 1e-9j, 1 + 0j),
        (np.float64(1), np.float64(1.0000001)),
        (np.array([1.0, np.nan, np.inf]), np.array([1.0000001, np.nan, np.inf])),
        (np.array([1 + 1e-9j]), np.array([1 + 0j])),
    ],
)
def test_close_ones_are_the_same(a: object, b: object) -> None:
    assert encode(a) != encode(b) or a is b or a != a
    assert same(a, b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (1.0, 1.00001),
        (0.0, 1e-300),
        (1e-300, -1e-300),
        (INF, 1e308),
        (INF, -INF),
        (NAN, 1.0),
        (True, 1),
        (0, False),
        (None, 0),
        ("1.0", "1.0000001"),
        ("1.0", 1.0),
        ([1.0], (1.0,)),
        ([1.0], [1.0, 1.0]),
        ({"a": 1.0}, {"b": 1.0}),
        ({"a": 1.0}, {"a": 1.0, "b": 1.0}),
        ({1.0: "x"}, {1.0000001: "x"}),
        ({1.0, 2.0}, {1.0000001, 2.0}),
        (date(2026, 1, 1), date(2026, 1, 2)),
        (b"1.0", b"1.0000001"),
        (10**400, 10**400 + 1),
        (2**5000, 2**5000 + 1),
        (np.array([1.0]), np.array([[1.0]])),
        (np.array([1.0]), np.array([1.0], np.float32)),
        (np.array([1.0, np.inf]), np.array([1.0, np.nan])),
        (np.array(["1.0"]), np.array(["1.1"])),
    ],
)
def test_others_are_not(a: object, b: object) -> None:
    assert not same(a, b)


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        ("loss 0.5\n", "loss 0.50000001\n", True),
        ("loss=0.5, 3 left.", "loss=0.50000001, 3.0 left.", True),
        ("[1,-2e3]", "[1.0,-2000.0001]", True),
        ("loss 0.5\n", "loss 0.6\n", False),
        ("loss 0.5\n", "loss  0.5\n", False),
        ("loss 0.5 \n", "lost 0.5 \n", False),
        ("1 2", "1 2 3", False),
        ("1 2 3", "1 2", False),
        ("v1.2.3", "v1.2.30000001", False),
        ("5f000001", "5f000002", False),
        ("x-5", "x+5", False),
        ("9" * 400, "9" * 399 + "8", False),
        ("1e999", "2e999", False),
        ("nan", "nan ", False),
    ],
)
def test_printed_text(a: str, b: str, answer: bool) -> None:
    assert same_text(a, b, MILLIONTH) is answer
    assert same_text(b, a, MILLIONTH) is answer


def _array(count: int, dtype: str = "|V0", data: bytes = b"") -> str:
    return json.dumps({"$array": {"dtype": dtype, "shape": [count], "data": b64encode(data).decode()}})


HOSTILE = [
    "[" * 150_000 + "]" * 150_000,
    '{"$tuple":[' * 20_000 + "]}" * 20_000,
    '{"a":' * 50_000 + "1" + "}" * 50_000,
    _array(10**18),
    _array(10**18, "<f8"),
    json.dumps({"$dict": [[number * (2**61 - 1), 1] for number in range(10_000)]}),
    json.dumps({"$set": [number * (2**61 - 1) for number in range(10_000)]}),
    json.dumps({"$int": "f" * 300_000}),
    json.dumps({"$float": "9" * 300_000}),
    json.dumps({"$decimal": "9" * 300_000 + "e999999999"}),
    json.dumps({"$decimal": "1e-999999999999999999"}),
    json.dumps({"$pickle": b64encode(b"cos\nsystem\n(S'true'\ntR.").decode()}),
    "1" * 300_000,
    "NaN",
    "",
    '{"$array":{"dtype":[["a","O"]],"shape":[1],"data":""}}',
]


def test_hostile_values_take_no_time_and_no_memory() -> None:
    started = time.process_time()
    for a, b in product(HOSTILE, repeat=2):
        assert same_value(a, b, MILLIONTH) == (a == b)
        assert same_value(a + " ", b, MILLIONTH) in (True, False)
    assert time.process_time() - started < 20, "256 pairs, each a moment"


@pytest.mark.parametrize("text", ["1" * 250_000 + "x", "1e" * 100_000, "-" * 200_000, "1." * 100_000, ". " * 99_999])
def test_hostile_texts_take_no_time(text: str) -> None:
    started = time.process_time()
    assert not same_text(text, text + "!", MILLIONTH)
    assert time.process_time() - started < 5


def test_what_is_too_long_is_the_same_only_if_it_is_equal() -> None:
    long = "[" + "1.0," * (VALUE_MAX // 4) + "1.0]"
    assert same_value(long, long, MILLIONTH)
    assert not same_value(long, long.replace("1.0]", "1.00]"), MILLIONTH)
    words = "1.0 " * (PRINTED_MAX // 4 + 1)
    assert same_text(words, words, MILLIONTH)
    assert not same_text(words, words + "1.00", MILLIONTH)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("exact", None),
        ("tolerance:1e-6", Tolerance(1e-6)),
        ("tolerance:0,0.5", Tolerance(0, 0.5)),
        ("tolerance:1e-6,1e-9", Tolerance(1e-6, 1e-9)),
    ],
)
def test_how_it_is_written(text: str, meant: Tolerance | None) -> None:
    assert parse(text) == meant
    assert meant is None or parse(str(meant)) == meant


@pytest.mark.parametrize(
    "text",
    ["", "tolerance", "tolerance:", "tolerance:0", "tolerance:1", "tolerance:-1", "tolerance:nan", "tolerance:1e-6,inf",
     "tolerance:1e-6,1,1", "tolerance:a", "Exact", "near"],
)  # fmt: skip
def test_how_it_is_not_written(text: str) -> None:
    with pytest.raises(BadRequest, match="tolerance:1e-6"):
        parse(text)


# classes


@given(st.lists(st.integers(0, 30), max_size=7), st.integers(0, 5))
def test_each_result_is_near_the_first_of_its_class_and_of_no_earlier_one(found: list[int], near: int) -> None:
    kinds = classes(len(found), lambda a, b: abs(found[a] - found[b]) <= near)
    assert isinstance(kinds, list)
    for place, kind in enumerate(kinds):
        assert kind <= place
        assert kinds[kind] == kind
        assert abs(found[place] - found[kind]) <= near
        assert not any(abs(found[place] - found[head]) <= near for head in set(kinds) if head < kind)


def test_an_answer_that_is_not_there_yet_is_asked_for() -> None:
    known: dict[tuple[int, int], bool] = {}
    asked = []
    while isinstance(pair := classes(4, lambda a, b: known.get((a, b))), tuple):
        asked.append(pair)
        known[pair] = pair == (0, 2)
    assert (asked, pair) == ([(0, 1), (0, 2), (0, 3), (1, 3)], [0, 1, 0, 3])
