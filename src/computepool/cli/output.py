"""Output of all commands: tables and fields, JSON with --json, and notes on standard error."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from computepool.core.plaintext import escape, printable
from computepool.core.words import byte_size, memory_size

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

    Printable = BaseModel | Sequence[BaseModel] | dict[str, Any] | Sequence[dict[str, Any]]

_STATES_BY_STYLE = {
    "green": ("succeeded", "active", "ready", "online", "ok"),
    "yellow": ("queued", "not polling", "cooling off", "owner only", "floor above price", "paused", "draining", "warn"),
    "cyan": ("leased",),
    "bold cyan": ("running", "working"),
    "magenta": ("cancelled", "left"),
    "red": ("expired", "unresponsive", "revoked", "offline"),
    "bold red": ("failed", "fail"),
}
_STATE_STYLES = {state: style for style, states in _STATES_BY_STYLE.items() for state in states}
Cell = str | int | float | None
_ID = re.compile(r"[a-z]+_[0-9a-z]{26}(-\d+)?")
#: Minimum width of a wrapped column.
_WRAPPED_CHARS = 10
#: Space between columns and at both edges.
_GAP = 3
_as_json = False


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def use_json(on: bool) -> None:
    """Called with the value of --json (see options.py)."""
    global _as_json  # noqa: PLW0603 - a process runs one command
    _as_json = on


def as_json() -> bool:
    return _as_json


def print_json(value: Printable) -> bool:
    """With --json, print the value as one document and return True: the command then prints nothing else."""
    if _as_json:
        sys.stdout.write(escape(json.dumps(_plain(value), indent=2, ensure_ascii=False)) + "\n")
    return _as_json


def show(value: Printable, text: str, *, hint: str = "") -> None:
    """Print JSON or text. `hint` goes to standard error, only with the text."""
    if print_json(value):
        return
    if text:
        write_line(text)
    if hint:
        note(hint)


def show_line(value: BaseModel, text: str) -> None:
    """Print one value of a stream, as JSON or as text."""
    write_line(value.model_dump_json() if _as_json else text)


def show_fields(value: Printable, fields: Sequence[tuple[str, Cell]]) -> None:
    if not print_json(value):
        print_fields(fields)


def show_table(value: Printable, columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, empty: str = "") -> None:
    if not print_json(value):
        print_table(columns, rows, empty=empty)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return value
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return value.model_dump(mode="json")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, empty: str = "") -> None:
    """Print aligned columns; tab-separated if the output is not a terminal. Without rows, prints `empty` on a terminal."""
    # Line breaks and tabs would break the table.
    listed = [["" if cell is None else re.sub(r"[\n\t]+", " ", printable(str(cell))) for cell in row] for row in rows]
    if any(len(row) != len(columns) for row in listed):  # cells would appear under wrong headers
        raise ValueError(f"a table of {len(columns)} columns has a row of another length: {columns}")
    if not sys.stdout.isatty():
        for row in listed:
            sys.stdout.write("\t".join(row) + "\n")
        return
    if not listed:
        if empty:
            write_line(empty)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    out = console()
    shown = _fitting_columns(columns, listed, width=out.width)
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for index in shown:
        whole = _is_ids(columns[index], [row[index] for row in listed])
        table.add_column(columns[index], no_wrap=whole, overflow="ignore" if whole else "fold")
    for row in listed:
        table.add_row(*(Text(row[index], style=_STATE_STYLES.get(row[index], "")) for index in shown))
    out.print(table, soft_wrap=False)
    if left_out := [column for index, column in enumerate(columns) if index not in shown]:
        note(f"Columns omitted in this narrow terminal: {', '.join(left_out)}. Use a wider one, or --json.")


def _fitting_columns(columns: Sequence[str], rows: Sequence[Sequence[str]], *, width: int) -> list[int]:
    """The columns that fit without truncating an ID; drops other columns first, from the end."""
    needs = []
    for index, name in enumerate(columns):
        cells = [row[index] for row in rows]
        longest = max(map(len, [name, *cells]))
        needs.append(longest if _is_ids(name, cells) else min(longest, max(len(name), _WRAPPED_CHARS)))
    shown = list(range(len(columns)))
    while len(shown) > 1 and sum(needs[index] + _GAP for index in shown) > width:
        others = [i for i in shown if not _is_ids(columns[i], [row[i] for row in rows])]
        shown.remove((others or shown)[-1])
    return shown


def _is_ids(column: str, cells: Sequence[str]) -> bool:
    return column == "ID" or any(map(_ID.fullmatch, cells))


def print_fields(fields: Sequence[tuple[str, Cell]]) -> None:
    """Print a name and a value per line; skips empty values."""
    width = max((len(name) for name, _ in fields), default=0)
    shown = [(name, printable(str(value))) for name, value in fields if value not in (None, "")]
    if not sys.stdout.isatty():
        for name, value in shown:
            sys.stdout.write(f"{name}\t{value}\n")
        return
    from rich.text import Text

    out = console()
    for name, value in shown:
        label = Text(f"{name:<{width}}  ", style="dim")
        out.print(label.append(value, style=_STATE_STYLES.get(value, "default")))


def write_line(text: str) -> None:
    sys.stdout.write(printable(text) + "\n")


def needs_approval(approval_id: str) -> str:
    return f"{approval_id} needs approval by a second administrator: pool approvals list"


def note(text: str) -> None:
    """Print to standard error, for people rather than programs."""
    sys.stderr.write(printable(text) + "\n")


def write_log(text: str, *, stderr: bool = False) -> None:
    """Print a job's output. On a terminal, removes all control sequences except colours."""
    stream = sys.stderr if stderr else sys.stdout
    stream.write(printable(text, colours=True) if stream.isatty() else text)
    stream.flush()


def ago(at_ms: int | None) -> str:
    from computepool.sdk.clock import now_ms

    return "" if at_ms is None else f"{span(now_ms() - at_ms)} ago"


def span(ms: float | None) -> str:
    """A duration with about two digits: 85 ms, 1.4 s, 12 min, 3.5 h, 9 d."""
    if ms is None:
        return ""
    ms = max(0.0, ms)
    for limit, unit, size in ((1000, "ms", 1), (90_000, "s", 1000), (5_400_000, "min", 60_000)):
        if ms < limit:
            return f"{_short(ms / size)} {unit}"
    return f"{_short(ms / 3_600_000)} h" if ms < 172_800_000 else f"{_short(ms / 86_400_000)} d"


size = byte_size


def memory(mb: float | None) -> str:
    return "" if mb is None else memory_size(mb)


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def moment(at_ms: int | None) -> str:
    """The local date and time."""
    return (
        "" if at_ms is None else datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    )


def ranges(ids: Iterable[int]) -> str:
    """Compact list of numbers, such as `0-3,8`."""
    parts: list[list[int]] = []
    for id_ in sorted(ids):
        if parts and parts[-1][-1] == id_ - 1:
            parts[-1].append(id_)
        else:
            parts.append([id_])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
