"""Arrays and tables are preserved with every dtype, and hostile ones are refused before a library reads them."""

from __future__ import annotations

import base64
import builtins
import contextlib
import json
import re
import subprocess
import sys
from datetime import date, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp, pandas as hpd

from computepool.core.trust.comparison import Tolerance
from computepool.core.trust.tolerance import same_value
from computepool.protocol.values.values import decode, encode

_BERLIN = "Europe/Berlin"


def check(value: Any) -> None:
    """Equal and of the same type, and stable."""
    text = encode(value)
    back = decode(text)
    assert type(back) is type(value)
    if isinstance(value, pd.DataFrame):
        pd.testing.assert_frame_equal(back, value)
        assert list(back.dtypes) == list(value.dtypes)
    elif isinstance(value, pd.Series):
        pd.testing.assert_series_equal(back, value)
    elif isinstance(value, pd.Index):
        pd.testing.assert_index_equal(back, value, exact=True)
        assert getattr(back, "freq", None) == getattr(value, "freq", None)
    elif isinstance(value, pa.Table | pa.RecordBatch):
        assert back.equals(value, check_metadata=True)
    elif isinstance(value, pa.Array | pa.ChunkedArray | pa.Scalar):
        assert back.type == value.type
        assert back.equals(value)
    else:
        assert back is value or back == value
    assert encode(back) == text


_INDEXES = [
    pd.RangeIndex(0, 4, 2, name="r"),
    pd.Index([3, 1], name=("a", 1)),
    pd.Index(["x", None]),
    pd.Index(["x", 1], dtype=object),
    pd.date_range("2026-01-01", periods=2, freq="3D", tz=_BERLIN),
    pd.DatetimeIndex(["2026-01-01", None]),
    pd.timedelta_range("1h", periods=2, freq="h"),
    pd.period_range("2026", periods=2, freq="Q"),
    pd.interval_range(0, 2),
    pd.CategoricalIndex(["b", "a"], categories=["b", "a", "c"], ordered=True),
    pd.MultiIndex.from_product([["a", "b"], pd.date_range("2026", periods=1)], names=["k", None]),
    pd.MultiIndex.from_tuples([("a", 1), ("b", None)]),
    pd.Index([], dtype="float32"),
]
_COLUMNS = [
    np.array([1.5, np.nan], "float32"),
    np.array([True, False]),
    np.array(["2026-01-01", "NaT"], "M8[ms]"),
    np.array([1, 2], "m8[s]"),
    np.array([1 + 2j, 0]),
    pd.array([1, None], dtype="Int8"),
    pd.array([2**64 - 1, None], dtype="UInt64"),
    pd.array([1.5, None], dtype="Float32"),
    pd.array([True, None], dtype="boolean"),
    pd.array(["é", None], dtype="string"),
    pd.array(["é", None], dtype=pd.StringDtype("python")),
    pd.array(["a", None], dtype="str"),
    pd.array([[1], {"a": (1, b"x")}], dtype=object),
    pd.array([pd.NA, pd.NaT], dtype=object),
    pd.array([pd.Timestamp("2026-01-01T00:00:00.123456789", tz="UTC"), pd.Timedelta("1ns")], dtype=object),
    pd.Categorical(["x", None], categories=["x", "y"]),
    pd.Categorical([pd.Timestamp("2026"), None]),
    pd.date_range("2026", periods=2, tz=timezone(timedelta(hours=5, minutes=30))).array,
    pd.date_range("2026", periods=2, tz=ZoneInfo(_BERLIN), unit="ns").array,
    pd.period_range("2026", periods=2, freq="M").array,
    pd.arrays.IntervalArray.from_tuples([(0.5, 1), (2, 3)], closed="both"),
    pd.array([1.5, None], dtype=pd.ArrowDtype(pa.float32())),
    pd.array([[1, 2], None], dtype=pd.ArrowDtype(pa.list_(pa.int8()))),
    pd.array(["a", None], dtype=pd.ArrowDtype(pa.dictionary(pa.int8(), pa.string()))),
]  # fmt: skip
_ARROW = [
    pa.table({"a": [1, None], "b": ["x", "ARROW:extension:name"]}).replace_schema_metadata({"k": "v"}),
    pa.table({}),
    pa.table({"a": pa.chunked_array([[1], [2, 3]])}),
    pa.record_batch({"d": pa.array(["a", "b", "a"]).dictionary_encode(), "t": [date(2026, 1, 1)] * 3}),
    pa.record_batch({"d": pa.array([], pa.int8())}),
    pa.array([[1], None, []]),
    pa.array([1.5, 2.5, 3.5])[1:],
    pa.array([{"a": 1, "b": [b"x"]}, None]),
    pa.array([], pa.decimal128(9, 2)),
    pa.array([None, None]),
    pa.chunked_array([], pa.timestamp("us", "UTC")),
    pa.chunked_array([["a"], ["b"]]),
    pa.scalar(1.5),
    pa.scalar(None, pa.int32()),
    pa.scalar({"a": [1, 2]}),
]


@pytest.mark.parametrize("value", _INDEXES, ids=lambda value: type(value).__name__)
def test_every_kind_of_index_is_preserved(value: Any) -> None:
    check(value)
    check(pd.Series(range(len(value)), index=value, name=value.name if value.nlevels == 1 else None))
    check(pd.DataFrame(np.arange(2 * len(value)).reshape(2, -1), columns=value))


@pytest.mark.parametrize("data", _COLUMNS, ids=lambda data: str(data.dtype))
def test_every_kind_of_column_is_preserved(data: Any) -> None:
    series = pd.Series(data, dtype=data.dtype, name="s")
    check(series)
    check(pd.DataFrame({"a": series, "b": series[::-1]}))
    check(series.iloc[:0])


@pytest.mark.parametrize("value", _ARROW, ids=lambda value: type(value).__name__)
def test_arrow_data_is_preserved(value: Any) -> None:
    check(value)


def test_unusual_frames_are_preserved() -> None:
    check(pd.DataFrame())
    check(pd.DataFrame(index=["a", "b"]))
    check(pd.DataFrame([[1, "x"], [2, "y"]], columns=["same", "same"]))
    check(pd.DataFrame({("a", 1): [1.5], ("b", None): [None]}))
    check([{"frame": pd.DataFrame({"x": [1]})}, pd.Timestamp("2026"), pd.NaT][1])
    nested = decode(encode({"k": [pd.DataFrame({"x": [pd.DataFrame({"y": [1]})]})]}))
    assert nested["k"][0].loc[0, "x"].loc[0, "y"] == 1


@given(
    hpd.data_frames(
        [
            hpd.column("a", dtype=float),
            hpd.column("b", dtype="int16"),
            hpd.column("c", elements=st.text(max_size=3), dtype=object),
            hpd.column("d", dtype="M8[ns]"),
        ],
        index=hpd.range_indexes(max_size=4) | hpd.indexes(elements=st.integers(-9, 9), max_size=4),
    )
)
@settings(max_examples=25)
def test_any_frame_is_preserved(frame: pd.DataFrame) -> None:
    check(frame)


@given(hnp.arrays(hnp.scalar_dtypes() | hnp.array_dtypes(max_size=2), hnp.array_shapes(max_dims=3, max_side=3)))
@settings(max_examples=50)
def test_an_array_keeps_its_memory_layout(array: Any) -> None:
    for value in (np.asfortranarray(array), array.T, array[::-1]):
        back = decode(encode(value))
        assert (back.dtype, back.shape, back.tobytes()) == (value.dtype, value.shape, value.tobytes())
        if value.flags.contiguous != back.flags.contiguous:
            assert not value.flags.f_contiguous  # a strided view becomes contiguous


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (pd.Series(pd.arrays.SparseArray([0, 1])), r"Sparse.* cannot be sent; convert it with astype"),
        (pa.array([b"0" * 16], pa.uuid()), "extension type cannot be sent"),
        (pd.Series([object()]), r"result\.data: object cannot be sent"),
        (pd.DataFrame({"a": [1], "b": [{1: object()}]}), r"result\.column 1\[1\]: object cannot be sent"),
        (type("Mine", (pd.DataFrame,), {})({"a": [1]}), "Mine cannot be sent"),
        (np.array(["x"], np.dtypes.StringDType()), "fixed-size"),
    ],
)
def test_an_unsupported_table_is_refused(value: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        encode(value)


# ---------------------------------------------------------------- hostile
def arrow_text(table: pa.Table, kind: str = "table", **options: Any) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write(table)
    data = base64.b64encode(sink.getvalue()).decode()
    return json.dumps({"$arrow": {"kind": kind, "data": data}})


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_a_compressed_table_is_refused(codec: str) -> None:
    """8 MB of zeros take less than 10 kB, so the size of untrusted data would be unknown."""
    table = pa.table({"a": np.zeros(1_000_000)})
    text = arrow_text(table, compression=codec)
    assert len(text) < 100_000
    with pytest.raises(ValueError, match="compressed"):
        decode(text)
    dictionary = pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), ["x" * 100_000])})
    with pytest.raises(ValueError, match="compressed"):
        decode(arrow_text(dictionary, compression=codec))


class Evil(pa.ExtensionType):
    made = 0

    def __init__(self) -> None:
        super().__init__(pa.int64(), "tests.evil")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage: Any, serialized: Any) -> Evil:
        cls.made += 1
        return cls()


def test_the_code_of_an_extension_type_does_not_run() -> None:
    pa.register_extension_type(Evil())
    try:
        table = pa.table({"a": pa.ExtensionArray.from_storage(Evil(), pa.array([1]))})
        text = arrow_text(table)
        Evil.made = 0
        with pytest.raises(ValueError, match="extension type"):
            decode(text)
        assert Evil.made == 0
    finally:
        pa.unregister_extension_type("tests.evil")


def changed(text: str, old: bytes, new: bytes) -> str:
    """The same Arrow text with other bytes in its stream."""
    body = json.loads(text)["$arrow"]
    data = base64.b64decode(body["data"])
    assert old in data
    return json.dumps({"$arrow": {**body, "data": base64.b64encode(data.replace(old, new)).decode()}})


def test_offsets_and_codes_out_of_range_are_refused() -> None:
    text = arrow_text(pa.table({"a": ["x" * 77, "y" * 11]}))
    offsets, wrong = (np.array(numbers, "<i4").tobytes() for numbers in ([0, 77, 88], [0, 2**30, 88]))
    with pytest.raises(ValueError):
        decode(changed(text, offsets, wrong))
    codes = pa.DictionaryArray.from_arrays(pa.array([5]), ["a"], safe=False)
    with pytest.raises(ValueError):
        decode(arrow_text(pa.table({"a": codes})))
    with pytest.raises(ValueError):
        decode(changed(arrow_text(pa.table({"a": ["plain"]})), b"plain", b"pl\xff\xffn"))


def filled(text: str, *parts: str) -> str:
    for part in parts:
        text = text.replace("@", part, 1)
    return text


_ONE = '{"$array":{"dtype":"|i1","shape":[1],"data":"AA=="}}'
_RANGE = '{"$index":{"range":["0x0","0x1","0x1"],"name":null}}'
_LONG = '{"$index":{"range":["0x0","0xfffffffffffff","0x1"],"name":null}}'


@pytest.mark.parametrize(
    "text",
    [
        filled('{"$series":{"data":1,"index":@,"name":null}}', _LONG),
        filled('{"$series":{"data":"x","index":@,"name":null}}', _LONG),
        filled('{"$series":{"data":@,"index":@,"name":null}}', _ONE, _LONG),
        filled('{"$series":{"data":@,"index":[1],"name":null}}', _ONE),
        filled('{"$series":{"data":@,"index":@,"name":[]}}', _ONE, _RANGE),
        filled('{"$frame":{"data":[@],"index":@,"columns":@}}', _ONE, _LONG, _RANGE),
        filled('{"$frame":{"data":[],"index":@,"columns":@}}', _RANGE, _RANGE),
        filled('{"$frame":{"data":[@],"index":@,"columns":[1]}}', _ONE, _RANGE),
        filled('{"$index":{"data":@,"name":null,"freq":"D"}}', _ONE),
        filled('{"$index":{"levels":[@],"codes":[@,@],"names":[1]}}', _RANGE, _ONE, _ONE),
        '{"$index":{"levels":[],"codes":[],"names":[]}}',
        filled('{"$column":{"kind":"category","codes":@,"categories":[],"ordered":true}}', _ONE),
        filled('{"$column":{"kind":"nullable","dtype":"Int64","values":@,"mask":@}}', _ONE, _ONE),
        filled('{"$column":{"kind":"nullable","dtype":"os.system","values":@,"mask":@}}', _ONE, _ONE),
        filled('{"$column":{"kind":"period","ordinals":@,"freq":"@"}}', _ONE, "9" * 50 + "D"),
        '{"$column":{"kind":"string","storage":"python","na":"NA","items":[1]}}',
        '{"$column":{"kind":"arrow","data":1}}',
        '{"$column":{"kind":"pickle","data":1}}',
        '{"$array":{"dtype":"|V0","shape":[1000000000],"data":""}}',
        '{"$timestamp":[1,"fortnight"]}',
        '{"$timestamp":["now","s"]}',
        '{"$timestamp":[1,"s",1]}',
        '{"$missing":"x"}',
        '{"$arrow":{"kind":"table","data":""}}',
        '{"$arrow":{"kind":"table","data":"AAAA"}}',
        '{"$arrow":{"kind":"what","data":"/////w=="}}',
        arrow_text(pa.table({"a": [1]}), "what"),
        arrow_text(pa.table({"a": []}), "scalar"),
        arrow_text(pa.table({}), "array"),
    ],
)  # fmt: skip
def test_hostile_tables_are_value_errors(text: str) -> None:
    with pytest.raises(ValueError):
        decode(text)


def test_rows_without_data_are_refused() -> None:
    text = arrow_text(pa.table({"a": pa.nulls(10)}))
    with pytest.raises(ValueError, match="more elements than its text"):
        decode(changed(text, (10).to_bytes(8, "little"), (2**40).to_bytes(8, "little")))


_TEXTS = [
    *(encode(pd.Series(data, dtype=data.dtype)) for data in _COLUMNS),
    *map(encode, _INDEXES),
    *map(encode, _ARROW),
    encode(np.zeros((2, 2), [("a", "<f4"), ("b", "S3")])),
]


@given(st.sampled_from(_TEXTS), st.data())
@settings(max_examples=150)
def test_changed_texts_are_value_errors_or_values(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(at, min(len(text), at + 8)))
    other = data.draw(st.sampled_from(["", "0", '"', "[", "null", "-1", "AAAA", "////", "$", "1e9"]))
    with contextlib.suppress(ValueError):
        decode(text[:at] + other + text[end:])


@given(st.sampled_from([text for text in _TEXTS if "$arrow" in text]), st.data())
@settings(max_examples=200)
def test_changed_arrow_bytes_are_value_errors_or_values(text: str, data: st.DataObject) -> None:
    found = re.search(r'"\$arrow":\{"kind":"\w+","data":"([^"]*)"', text)
    assert found is not None
    stream = bytearray(base64.b64decode(found[1]))
    for _ in range(data.draw(st.integers(1, 4))):
        stream[data.draw(st.integers(0, len(stream) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ValueError):
        repr(decode(text.replace(found[1], base64.b64encode(stream).decode())))


@pytest.mark.parametrize(
    ("value", "library"),
    [(pd.DataFrame({"a": [1]}), "pandas"), (pa.table({"a": [1]}), "pyarrow"), (np.zeros(1), "numpy")],
    ids=["pandas", "pyarrow", "numpy"],
)
def test_a_missing_library_is_named(value: Any, library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = encode(value)
    for name in ("pandas", "pyarrow", "numpy"):
        if library in ("numpy", name):
            monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ValueError, match=f"install {library} to read it"):
        decode(text)


def test_the_codec_imports_no_library_for_values_that_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def guarded(name: str, *args: Any, **kwargs: Any) -> Any:
        assert name.partition(".")[0] not in ("numpy", "pandas", "pyarrow")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", guarded)
    for name in ("numpy", "pandas", "pyarrow"):
        monkeypatch.delitem(sys.modules, name)
    assert decode(encode([1, {"a": (b"x", date(2026, 1, 1))}])) == [1, {"a": (b"x", date(2026, 1, 1))}]


# ---------------------------------------------------------------- the hub's comparison
_NEAR = Tolerance(relative=1e-6)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        (pd.DataFrame({"x": [1.0, 2.0]}), pd.DataFrame({"x": [1.0, 2.0 + 1e-9]}), True),
        (pd.DataFrame({"x": [1.0, 2.0]}), pd.DataFrame({"x": [1.0, 2.1]}), False),
        (pd.DataFrame({"x": [1.0]}), pd.DataFrame({"y": [1.0]}), False),
        (pd.Series([1.0, None], dtype="Float64"), pd.Series([1.0 + 1e-9, None], dtype="Float64"), True),
        (pd.Series([1.0, None], dtype="Float64"), pd.Series([1.0, 0.0], dtype="Float64"), False),
        (np.asfortranarray([[1.0, 2], [3, 4]]), np.array([[1.0, 2], [3, 4 + 1e-9]]), True),
        (np.asfortranarray([[1.0, 2], [3, 4]]), np.array([[1.0, 3], [2, 4]]), False),
        (pa.table({"a": [1.0]}), pa.table({"a": [1.0 + 1e-9]}), False),
        (pd.Categorical(["a", "b"]), pd.Categorical(["b", "a"]), False),
    ],
)
def test_the_hub_compares_inside_tables(a: Any, b: Any, same: bool) -> None:
    assert same_value(encode(a), encode(b), _NEAR) is same
    loose = Tolerance(relative=0.0, absolute=1.5)
    assert same_value(encode(pd.Categorical(["a", "b"])), encode(pd.Categorical(["b", "a"])), loose) is False


# ---------------------------------------------------------------- short texts that need much memory
def _range_index(count: int) -> dict[str, Any]:
    return {"$index": {"range": ["0x0", hex(count), "0x1"], "name": None}}


def _column(**body: Any) -> dict[str, Any]:
    return {"$column": body}


def _nulls(rows: int, kind: Any) -> dict[str, Any]:
    """A table without columns, with the number of rows patched into it."""
    tree: dict[str, Any] = json.loads(encode(pa.nulls(0x0102, kind)))
    data = base64.b64decode(tree["$arrow"]["data"])
    changed = data.replace((0x0102).to_bytes(8, "little"), rows.to_bytes(8, "little"))
    tree["$arrow"]["data"] = base64.b64encode(changed).decode()
    return tree


MANY = 2_000_000_000
CODES = json.loads(encode(np.array([0, 1], dtype="int8")))
BOMBS: dict[str, Any] = {
    "interval": _column(kind="interval", left=_range_index(MANY), right=_range_index(MANY), closed="right"),
    "category": _column(kind="category", codes=CODES, categories=_range_index(MANY), ordered=False),
    "levels": {"$index": {"levels": [_range_index(MANY)] * 2, "codes": [CODES] * 2, "names": [None, None]}},
    "names": {
        "$index": {
            "levels": [_range_index(2)] * 2,
            "codes": [CODES] * 2,
            "names": {"$range": ["0x0", hex(MANY), "0x1"]},
        }
    },
    "index": _range_index(MANY),
    "below zero": {"$index": {"range": [hex(MANY), hex(-MANY), "-0x1"], "name": None}},
    "rows without columns": {"$frame": {"columns": _range_index(0), "index": _range_index(MANY), "data": []}},
    "nothing in each": {"$array": {"dtype": "<U0", "shape": [MANY], "data": ""}},
    "nothing in each, twice": {"$array": {"dtype": "|V0", "shape": [2**16, 2**16], "data": ""}},
    "nothing in a column": {
        "$series": {
            "data": {"$array": {"dtype": "<U0", "shape": [MANY], "data": ""}},
            "index": _range_index(MANY),
            "name": None,
        }
    },
    "many small ones": [_column(kind="interval", left=_range_index(2**19), right=_range_index(2**19), closed="right")]
    * 200,
    "many with nothing": [{"$array": {"dtype": "<U0", "shape": [2**19], "data": ""}}] * 200,
    "nulls": _nulls(MANY, pa.null()),
    **{
        f"a {tag} of a range": {tag: {"$range": ["0x0", hex(MANY), "0x1"]}}
        for tag in ("$tuple", "$set", "$frozenset", "$dict")
    },
}
_SMALL_MEMORY = """
import json, resource, sys, time
import numpy, pandas, pyarrow
from computepool.protocol.values.values import decode
decode('{"$index": {"range": ["0x0", "0x2", "0x1"], "name": null}}')
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 300 * 2**20,) * 2)
for name, text in json.load(sys.stdin).items():
    try:
        decode(text)
    except ValueError as error:
        print(name, "refused" if "MemoryError" not in str(error) else "out of memory")
    except MemoryError:
        print(name, "out of memory")
    else:
        print(name, "read")
"""


@pytest.mark.soak
def test_a_short_text_needs_little_memory() -> None:
    texts = {name: json.dumps(tree) for name, tree in BOMBS.items()}
    ran = subprocess.run(
        [sys.executable, "-c", _SMALL_MEMORY],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.stdout.splitlines() == [f"{name} refused" for name in BOMBS], ran.stderr[-2000:]


def test_large_tables_with_data_are_read() -> None:
    rows = 3 * 2**20
    for value in (
        pd.DataFrame({"a": np.zeros(rows, dtype="bool")}),
        pd.Series(pd.arrays.ArrowExtensionArray(pa.array(np.ones(rows, "bool")))),
        pd.RangeIndex(2**20),
        pd.interval_range(0, 1000),
    ):
        assert len(decode(encode(value))) == len(value)
