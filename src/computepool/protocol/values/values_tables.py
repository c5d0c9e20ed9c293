"""Arrays and tables of NumPy and pandas.

Part of the codec in values.py and copied into sandboxes with it: standard library only, the libraries are used only when a
value needs them. Data is checked before a library processes it. A pandas object consists of its columns and its index, each
an array or a `$column` of one of the kinds below. So every dtype is restored, and a comparison within a tolerance can look
inside.
"""

from __future__ import annotations

import importlib
import math
import sys
from base64 import b64decode
from collections.abc import Callable
from datetime import tzinfo
from typing import Any

from computepool.protocol.values import values_arrow
from computepool.protocol.values.values_arrow import Read as _Read, Unsendable, b64 as _b64, library

_Inner = Callable[[Any, str], Any]
_FREQ_CHARS_MAX = 40
_NULLABLE = {
    **{f"{sign}Int{bits}": "IntegerArray" for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "Float32": "FloatingArray",
    "Float64": "FloatingArray",
    "boolean": "BooleanArray",
}


# ---------------------------------------------------------------- value → JSON tree
def pack(value: Any, inner: _Inner) -> Any:
    """None for values that are not from these libraries. Such values exist only if a library is imported."""
    numpy, pandas = sys.modules.get("numpy"), sys.modules.get("pandas")
    if numpy is not None and (type(value) is numpy.ndarray or isinstance(value, numpy.generic)):
        return _pack_array(value)
    if pandas is not None and type(value).__module__.partition(".")[0] == "pandas":
        return _pack_pandas(value, pandas, inner)
    return values_arrow.pack(value)


def _pack_array(value: Any) -> dict[str, Any]:
    numpy, dtype = importlib.import_module("numpy"), value.dtype
    if dtype.hasobject:
        raise Unsendable(f"numpy array of dtype {dtype} cannot be sent; use a fixed-size dtype")
    descr = numpy.lib.format.dtype_to_descr(dtype)
    if numpy.lib.format.descr_to_dtype(_tuples(descr)) != dtype:
        raise Unsendable(f"numpy array of dtype {dtype} cannot be sent; use a dtype of NumPy's own")
    if type(value) is not numpy.ndarray:
        return {"$scalar": {"dtype": descr, "data": _b64(value.tobytes())}}
    body = {"dtype": descr, "shape": list(value.shape)}
    if value.flags.f_contiguous and not value.flags.c_contiguous:
        return {"$array": {**body, "order": "F", "data": _b64(value.tobytes("F"))}}
    return {"$array": {**body, "data": _b64(value.tobytes())}}


def _pack_pandas(value: Any, pandas: Any, inner: _Inner) -> Any:
    if value is pandas.NA or value is pandas.NaT:
        return {"$missing": "NA" if value is pandas.NA else "NaT"}
    kind = type(value)
    if kind is pandas.Timestamp or kind is pandas.Timedelta:
        zone = None if kind is pandas.Timedelta or value.tzinfo is None else inner(value.tzinfo, "tzinfo")
        number = int(value.asm8.astype("int64"))
        tag = "$timestamp" if kind is pandas.Timestamp else "$timespan"
        return {tag: [number, value.unit, *([] if zone is None else [zone])]}
    if kind is pandas.Series:
        body = {"data": _pack_column(value.array, pandas, inner), "index": inner(value.index, "index")}
        return {"$series": {**body, "name": inner(value.name, "name")}}
    if kind is pandas.DataFrame:
        columns = [
            _pack_column(value.iloc[:, at].array, pandas, inner, step=f"column {at}") for at in range(value.shape[1])
        ]
        body = {"columns": inner(value.columns, "columns"), "index": inner(value.index, "index")}
        return {"$frame": {**body, "data": columns}}
    if isinstance(value, pandas.Index):
        return {"$index": _pack_index(value, pandas, inner)}
    if isinstance(value, pandas.api.extensions.ExtensionArray):
        return _pack_column(value, pandas, inner)
    return None


def _pack_index(value: Any, pandas: Any, inner: _Inner) -> dict[str, Any]:
    kind = type(value)
    if kind is pandas.RangeIndex:
        return {"range": [hex(value.start), hex(value.stop), hex(value.step)], "name": inner(value.name, "name")}
    if kind is pandas.MultiIndex:
        levels = [inner(level, "level") for level in value.levels]
        numpy = importlib.import_module("numpy")
        codes = [_pack_array(numpy.asarray(codes)) for codes in value.codes]
        return {"levels": levels, "codes": codes, "names": inner(list(value.names), "names")}
    body = {"data": _pack_column(value.array, pandas, inner), "name": inner(value.name, "name")}
    freq = getattr(value, "freq", None) if kind in (pandas.DatetimeIndex, pandas.TimedeltaIndex) else None
    if freq is not None and pandas.tseries.frequencies.to_offset(freq.freqstr) == freq:
        body["freq"] = freq.freqstr
    return body


def _pack_column(array: Any, pandas: Any, inner: _Inner, *, step: str = "data") -> Any:
    """NumPy arrays as arrays, others as {"$column": …}."""
    numpy = importlib.import_module("numpy")
    if type(array) is pandas.arrays.NumpyExtensionArray:
        array = array.to_numpy()
    dtype = array.dtype
    if isinstance(dtype, numpy.dtype):
        if dtype.hasobject and dtype.kind == "O":
            return {"$column": {"kind": "object", "items": [inner(item, step) for item in array]}}
        return _pack_array(numpy.asarray(array))
    for kind, packer in _COLUMNS.items():
        if type(dtype).__name__ == kind and type(dtype).__module__.partition(".")[0] == "pandas":
            return {"$column": packer(array, pandas, inner)}
    if str(dtype) in _NULLABLE:
        values = array.to_numpy(dtype=dtype.numpy_dtype, na_value=dtype.numpy_dtype.type(0))
        body = {"values": _pack_array(values), "mask": _pack_array(array.isna())}
        return {"$column": {"kind": "nullable", "dtype": str(dtype), **body}}
    raise Unsendable(f"a pandas column of dtype {dtype} cannot be sent; convert it with astype()")


def _pack_zoned(array: Any, pandas: Any, inner: _Inner) -> dict[str, Any]:
    moments = array.tz_convert(None).to_numpy()
    return {"kind": "zoned", "data": _pack_array(moments), "zone": inner(array.dtype.tz, "tz")}


def _pack_strings(array: Any, pandas: Any, inner: _Inner) -> dict[str, Any]:
    items = [None if gone else inner(str(item), "data") for item, gone in zip(array, array.isna(), strict=True)]
    na = "NA" if array.dtype.na_value is pandas.NA else "nan"
    return {"kind": "string", "storage": array.dtype.storage, "na": na, "items": items}


def _pack_categories(array: Any, pandas: Any, inner: _Inner) -> dict[str, Any]:
    codes, categories = _pack_array(array.codes), inner(array.categories, "categories")
    return {"kind": "category", "codes": codes, "categories": categories, "ordered": bool(array.ordered)}


def _pack_periods(array: Any, pandas: Any, inner: _Inner) -> dict[str, Any]:
    freq = str(array.dtype).removeprefix("period[").removesuffix("]")
    if pandas.PeriodDtype(freq) != array.dtype:
        raise Unsendable(f"a pandas column of dtype {array.dtype} cannot be sent")
    return {"kind": "period", "ordinals": _pack_array(array.asi8), "freq": freq}


def _pack_intervals(array: Any, pandas: Any, inner: _Inner) -> dict[str, Any]:
    sides = {"left": inner(array.left, "left"), "right": inner(array.right, "right")}
    return {"kind": "interval", **sides, "closed": array.closed}


def _pack_arrow_column(array: Any, pandas: Any, inner: _Inner) -> dict[str, Any]:
    arrow = importlib.import_module("pyarrow")
    return {"kind": "arrow", "data": values_arrow.pack(arrow.chunked_array(array.__arrow_array__()))}


_COLUMNS: dict[str, Callable[[Any, Any, _Inner], dict[str, Any]]] = {
    "DatetimeTZDtype": _pack_zoned,
    "StringDtype": _pack_strings,
    "CategoricalDtype": _pack_categories,
    "PeriodDtype": _pack_periods,
    "IntervalDtype": _pack_intervals,
    "ArrowDtype": _pack_arrow_column,
}


# ---------------------------------------------------------------- JSON tree → value
def unpack(tag: str, body: Any, read: _Read) -> Any:
    """Turns any error of a library about hostile data into a ValueError."""
    try:
        return UNPACKERS[tag](body, read)
    except (ValueError, RecursionError):
        raise
    except Exception as error:
        raise ValueError(f"the encoded value is malformed: {type(error).__name__}: {error}") from error


def _pandas() -> Any:
    return library("pandas", "a pandas table")


def _unpack_array(body: dict[str, Any], read: _Read) -> Any:
    numpy, dtype = _numpy_dtype(body["dtype"])
    data = bytearray(b64decode(body["data"], validate=True))
    shape = tuple(body["shape"])
    size = math.prod(shape)
    if size * dtype.itemsize != len(data) or min(shape, default=0) < 0:
        raise ValueError("the encoded array's shape does not match its data")
    read.room.take(size - len(data))
    return numpy.ndarray(shape, dtype, buffer=data, order="F" if body.get("order") == "F" else "C")


def _unpack_scalar(body: dict[str, Any], read: _Read) -> Any:
    numpy, dtype = _numpy_dtype(body["dtype"])
    if dtype.itemsize == 0:  # the empty str_ and bytes_
        return dtype.type("") if dtype.kind == "U" else dtype.type(b"")
    data = b64decode(body["data"], validate=True)
    if len(data) != dtype.itemsize:
        raise ValueError("the encoded scalar's size does not match its dtype")
    return numpy.ndarray((), dtype, buffer=data)[()]


def _numpy_dtype(descr: Any) -> tuple[Any, Any]:
    numpy = library("numpy", "a NumPy array")
    dtype = numpy.lib.format.descr_to_dtype(_tuples(descr))
    if dtype.hasobject:
        raise ValueError("the encoded array contains Python objects, which are not accepted")
    return numpy, dtype


def _tuples(descr: Any) -> Any:
    """Restore the (name, format[, shape]) tuples of a structured dtype, which JSON has turned into lists."""
    if not isinstance(descr, list):
        return descr
    return [(tuple(name) if isinstance(name, list) else name, _tuples(kind), *map(tuple, shape))
            for name, kind, *shape in descr]  # fmt: skip


def _column(tree: Any, read: _Read) -> Any:
    """A one-dimensional column. pandas would repeat a scalar for every entry of an index."""
    pandas, numpy = _pandas(), library("numpy", "a NumPy array")
    found = read(tree)
    if not isinstance(found, numpy.ndarray | pandas.api.extensions.ExtensionArray) or found.ndim != 1:
        raise ValueError("the encoded column is not valid")
    return found


def _index(tree: Any, read: _Read) -> Any:
    found = read(tree)
    if not isinstance(found, _pandas().Index):
        raise ValueError("the encoded index is not valid")
    return found


def _unpack_series(body: dict[str, Any], read: _Read) -> Any:
    data, index = _column(body["data"], read), _index(body["index"], read)
    return _pandas().Series(data, index=index, name=read(body["name"]), dtype=data.dtype)


def _unpack_frame(body: dict[str, Any], read: _Read) -> Any:
    pandas = _pandas()
    index, columns = _index(body["index"], read), _index(body["columns"], read)
    if len(columns) != len(body["data"]):
        raise ValueError("the encoded table has different numbers of columns and names")
    data = [_column(tree, read) for tree in body["data"]]
    if any(len(column) != len(index) for column in data):
        raise ValueError("the encoded table's columns are not as long as its index")
    series = {at: pandas.Series(item, index=index, dtype=item.dtype) for at, item in enumerate(data)}
    frame = pandas.DataFrame(series, index=index)
    frame.columns = columns
    return frame


def _unpack_index(body: dict[str, Any], read: _Read) -> Any:
    pandas = _pandas()
    if "range" in body:
        start, stop, step = (int(number, 16) for number in body["range"])
        read.room.take(len(range(start, stop, step)))
        return pandas.RangeIndex(start, stop, step, name=read(body["name"]))
    if "levels" in body:
        levels = [_index(level, read) for level in body["levels"]]
        codes = [_column(tree, read) for tree in body["codes"]]
        names = [read(name) for name in _exactly(list, body["names"])]
        return pandas.MultiIndex(levels, codes, names=names)
    data = _column(body["data"], read)
    index = pandas.Index(data, name=read(body["name"]), dtype=data.dtype)
    if "freq" in body:
        if not isinstance(index, pandas.DatetimeIndex | pandas.TimedeltaIndex):
            raise ValueError("the encoded index has a frequency but no timestamps")
        index.freq = _freq(body["freq"])
    return index


def _exactly(kind: type, item: Any) -> Any:
    """Refuse objects that only behave like the type: a range is short only until somebody lists it."""
    if type(item) is not kind:
        raise ValueError(f"the encoded value has a {type(item).__name__} where it needs a {kind.__name__}")
    return item


def _freq(text: Any) -> str:
    if len(found := str(_exactly(str, text))) > _FREQ_CHARS_MAX:
        raise ValueError("the encoded frequency is not valid")
    return found


def _unpack_objects(body: dict[str, Any], read: _Read) -> Any:
    found = library("numpy", "a NumPy array").empty(len(body["items"]), object)
    for at, item in enumerate(body["items"]):
        found[at] = read(item)
    return found


def _unpack_nullable(body: dict[str, Any], read: _Read) -> Any:
    name = _NULLABLE[body["dtype"]]
    found = getattr(_pandas().arrays, name)(_column(body["values"], read), _column(body["mask"], read))
    if str(found.dtype) != body["dtype"]:
        raise ValueError("the encoded column does not have the dtype that it states")
    return found


def _unpack_zoned(body: dict[str, Any], read: _Read) -> Any:
    moments = _pandas().DatetimeIndex(_column(body["data"], read))
    return moments.tz_localize("UTC").tz_convert(_zone(body["zone"], read)).array


def _zone(tree: Any, read: _Read) -> tzinfo:
    """Refuse numbers and names, which pandas would look up in its own way."""
    zone = read(tree)
    if not isinstance(zone, tzinfo):
        raise ValueError("the encoded time zone is not valid")
    return zone


def _unpack_strings(body: dict[str, Any], read: _Read) -> Any:
    pandas = _pandas()
    storage = "pyarrow" if body["storage"] == "pyarrow" and _has_arrow() else "python"
    na = pandas.NA if body["na"] == "NA" else math.nan
    items = [None if item is None else _exactly(str, read(item)) for item in body["items"]]
    return pandas.array(items, dtype=pandas.StringDtype(storage, na_value=na))


def _has_arrow() -> bool:
    try:
        importlib.import_module("pyarrow")
    except ImportError:
        return False
    return True


def _unpack_categories(body: dict[str, Any], read: _Read) -> Any:
    codes, categories = _column(body["codes"], read), _index(body["categories"], read)
    return _pandas().Categorical.from_codes(codes, categories=categories, ordered=body["ordered"] is True)


def _unpack_periods(body: dict[str, Any], read: _Read) -> Any:
    pandas = _pandas()
    return pandas.arrays.PeriodArray(_column(body["ordinals"], read), dtype=pandas.PeriodDtype(_freq(body["freq"])))


def _unpack_intervals(body: dict[str, Any], read: _Read) -> Any:
    left, right = _index(body["left"], read), _index(body["right"], read)
    return _pandas().arrays.IntervalArray.from_arrays(left, right, closed=body["closed"])


_KINDS: dict[str, Callable[[dict[str, Any], _Read], Any]] = {
    "object": _unpack_objects,
    "nullable": _unpack_nullable,
    "zoned": _unpack_zoned,
    "string": _unpack_strings,
    "category": _unpack_categories,
    "period": _unpack_periods,
    "interval": _unpack_intervals,
    "arrow": lambda body, read: _pandas().arrays.ArrowExtensionArray(read(body["data"])),
}


def _unpack_timestamp(body: list[Any], read: _Read) -> Any:
    numpy = library("numpy", "a moment of pandas")
    moment = _pandas().Timestamp(numpy.datetime64(_exactly(int, body[0]), _unit(body[1])))
    return moment.tz_localize("UTC").tz_convert(_zone(body[2], read)) if len(body) > 2 else moment


def _unpack_timedelta(body: list[Any], read: _Read) -> Any:
    numpy = library("numpy", "a time span of pandas")
    return _pandas().Timedelta(numpy.timedelta64(_exactly(int, body[0]), _unit(body[1])))


def _unit(unit: Any) -> str:
    if unit not in ("s", "ms", "us", "ns"):
        raise ValueError("the encoded timestamp's unit is not valid")
    return str(unit)


UNPACKERS: dict[str, Callable[[Any, _Read], Any]] = {
    "$array": _unpack_array,
    "$scalar": _unpack_scalar,
    "$series": _unpack_series,
    "$frame": _unpack_frame,
    "$index": _unpack_index,
    "$column": lambda body, read: _KINDS[body["kind"]](body, read),
    "$missing": lambda body, read: {"NA": _pandas().NA, "NaT": _pandas().NaT}[body],
    "$timestamp": _unpack_timestamp,
    "$timespan": _unpack_timedelta,
    "$arrow": values_arrow.unpack,
}
