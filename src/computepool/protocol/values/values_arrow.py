"""Arrow tables, batches, arrays and scalars as uncompressed IPC streams.

Part of the codec in values.py and copied into sandboxes with it: standard library only, pyarrow is used only when a value
needs it. Each message of a stream is checked before pyarrow creates types or arrays from it, and the data (offsets, texts,
dictionary codes) before the value is returned.
"""

from __future__ import annotations

import importlib
import struct
import sys
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any, Protocol

#: A text may represent this many elements without bytes of their own (of a range, empty texts, nulls), plus `_PER_CHAR` for
#: each of its characters.
EMPTY_MAX = 2**20
_PER_CHAR = 16  # a column of bits has six in one character, and so has its index


class ElementBudget:
    """The rest of that limit while a text is read. Everything that may need more memory than its text takes from it first."""

    def __init__(self, chars: int) -> None:
        self._left = EMPTY_MAX + _PER_CHAR * chars

    def take(self, elements: int) -> None:
        self._left -= max(0, elements)
        if self._left < 0:
            raise ValueError("the encoded value has far more elements than its text can hold")


class Read(Protocol):
    """Reads a part of the value."""

    room: ElementBudget

    def __call__(self, tree: Any, /) -> Any: ...


class Unsendable(Exception):
    """The value cannot be sent; the message says why."""


def b64(data: Any) -> str:
    return b64encode(data).decode("ascii")


def pack(value: Any) -> Any:
    """None for values that are not from pyarrow. Such values exist only if pyarrow is imported."""
    arrow = sys.modules.get("pyarrow")
    if arrow is None or type(value).__module__.partition(".")[0] != "pyarrow":
        return None
    if isinstance(value, arrow.Table):
        kind, table = "table", value
    elif isinstance(value, arrow.RecordBatch):
        kind, table = "batch", value
    elif isinstance(value, arrow.ChunkedArray):
        kind, table = "chunked", arrow.Table.from_arrays([value], names=["value"])
    elif isinstance(value, arrow.Array):
        kind, table = "array", arrow.RecordBatch.from_arrays([value], names=["value"])
    elif isinstance(value, arrow.Scalar):
        kind, table = "scalar", arrow.RecordBatch.from_arrays([arrow.repeat(value, 1)], names=["value"])
    else:
        return None
    if b"ARROW:extension:" in table.schema.serialize().to_pybytes():
        raise Unsendable("an Arrow extension type cannot be sent; send its storage")
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return {"$arrow": {"kind": kind, "data": b64(sink.getvalue())}}


def library(name: str, what: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ValueError(f"the value holds {what}; install {name} to read it") from None


def unpack(body: dict[str, Any], read: Read) -> Any:
    arrow = library("pyarrow", "an Arrow table")
    data = arrow.py_buffer(b64decode(body["data"], validate=True))
    _check_stream(data, arrow)
    with arrow.ipc.open_stream(data) as reader:
        table = reader.read_all()
    read.room.take(table.num_rows * max(1, sum(_elements(column) for column in table.schema.types)))
    table.validate(full=True)
    return _ARROW_KINDS[body["kind"]](table, arrow)


def _elements(kind: Any) -> int:
    """The minimum number of elements in a row, which may have no bytes."""
    inner = [kind.field(at).type for at in range(kind.num_fields)]
    return getattr(kind, "list_size", 1) * max(1, sum(map(_elements, inner)))


def _check_stream(data: Any, arrow: Any) -> None:
    """Check the stream before any type is created: no extension types, whose code would run, and no compression."""
    reader = arrow.ipc.MessageReader.open_stream(data)
    for at, message in enumerate(iter(reader)):
        metadata = message.metadata.to_pybytes()
        if (message.type == "schema") is not (at == 0) or message.type not in _ARROW_MESSAGES:
            raise ValueError("the encoded table is not an Arrow stream")
        if at == 0 and b"ARROW:extension:" in metadata:
            raise ValueError("the encoded table has an extension type, which is not accepted")
        if at and _is_compressed(metadata, nested=message.type == "dictionary"):
            raise ValueError("the encoded table is compressed, which is not accepted")


_ARROW_MESSAGES = ("schema", "dictionary", "record batch")


def _is_compressed(metadata: bytes, *, nested: bool) -> bool:
    """Whether the record batch of a message (FlatBuffers, verified by pyarrow) names a compression."""
    header = _flat_field(metadata, struct.unpack_from("<I", metadata, 0)[0], 2)
    if nested and header is not None:
        header = _flat_field(metadata, header, 1)
    return header is None or _flat_field(metadata, header, 3) is not None


def _flat_field(data: bytes, table: int, number: int) -> int | None:
    """The offset of the table that a field of a table refers to."""
    slots = table - struct.unpack_from("<i", data, table)[0]
    if struct.unpack_from("<H", data, slots)[0] <= 4 + 2 * number:
        return None
    offset = struct.unpack_from("<H", data, slots + 4 + 2 * number)[0]
    if not offset:
        return None
    place: int = table + offset + struct.unpack_from("<I", data, table + offset)[0]
    return place


def _one_batch(table: Any, arrow: Any) -> Any:
    batches = table.to_batches()
    if len(batches) > 1:
        raise ValueError("the encoded stream has more than one batch")
    return batches[0] if batches else arrow.RecordBatch.from_pylist([], schema=table.schema)


def _one_array(table: Any, arrow: Any) -> Any:
    return _one_batch(table, arrow).column(0)


_ARROW_KINDS: dict[str, Callable[[Any, Any], Any]] = {
    "table": lambda table, arrow: table,
    "batch": _one_batch,
    "chunked": lambda table, arrow: table.column(0),
    "array": _one_array,
    "scalar": lambda table, arrow: _one_array(table, arrow)[0],
}
