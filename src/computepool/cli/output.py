"""How things are printed: one look for tables and states, JSON where a program reads it, errors as sentences."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from computepool.cli.clock import now_ms

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

_STATE_STYLES = {
    "queued": "yellow",
    "leased": "cyan",
    "running": "bold cyan",
    "succeeded": "green",
    "failed": "bold red",
    "cancelled": "magenta",
    "expired": "red",
    "active": "green",
    "paused": "yellow",
    "draining": "yellow",
    "revoked": "red",
    "online": "green",
    "offline": "red",
    "ok": "green",
    "warn": "yellow",
    "fail": "bold red",
}
Cell = str | int | float | None


def console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=True)


def print_json(value: BaseModel | Sequence[BaseModel] | dict[str, Any] | Sequence[dict[str, Any]]) -> None:
    """One document on stdout, exactly what the hub said."""
    sys.stdout.write(json.dumps(_plain(value), indent=2, ensure_ascii=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return value
    if isinstance(value, Sequence):
        return [_plain(item) for item in value]
    return value.model_dump(mode="json")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, empty: str) -> None:
    """Aligned columns; where the output is no terminal, tabs, which other programs can cut."""
    listed = [["" if cell is None else str(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty():
        for row in listed:
            sys.stdout.write("\t".join(row) + "\n")
        return
    if not listed:
        say(empty)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(*columns, box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for row in listed:
        table.add_row(*(Text(cell, style=_STATE_STYLES.get(cell, "")) for cell in row))
    console().print(table)


def print_fields(fields: Sequence[tuple[str, Cell]]) -> None:
    """One thing in full: a name and a value per line."""
    width = max((len(name) for name, _ in fields), default=0)
    shown = [(name, str(value)) for name, value in fields if value not in (None, "")]
    if not sys.stdout.isatty():
        for name, value in shown:
            sys.stdout.write(f"{name}\t{value}\n")
        return
    from rich.text import Text

    out = console()
    for name, value in shown:
        label = Text(f"{name:<{width}}  ", style="dim")
        out.print(label.append(value, style=_STATE_STYLES.get(value, "default")))


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """For the person, not for the pipe."""
    sys.stderr.write(text + "\n")


def ago(at_ms: int | None) -> str:
    return "" if at_ms is None else f"{span(now_ms() - at_ms)} ago"


def span(ms: float | None) -> str:
    """A length of time with two figures at most: 85 ms, 1.4 s, 12 min, 3.5 h, 9 d."""
    if ms is None:
        return ""
    ms = max(0.0, ms)
    for limit, unit, size in ((1000, "ms", 1), (90_000, "s", 1000), (5_400_000, "min", 60_000)):
        if ms < limit:
            return f"{_short(ms / size)} {unit}"
    return f"{_short(ms / 3_600_000)} h" if ms < 172_800_000 else f"{_short(ms / 86_400_000)} d"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{_short(count)} {unit}"
        count /= 1000
    return f"{_short(count)} TB"


def memory(mb: float | None) -> str:
    return "" if mb is None else f"{_short(mb / 1024)} GiB" if mb >= 1024 else f"{_short(mb)} MiB"


def _short(number: float) -> str:
    return f"{number:.0f}" if number >= 10 or number == int(number) else f"{number:.1f}"


def moment(at_ms: int) -> str:
    """The local time of day of something that was recorded."""
    return datetime.fromtimestamp(at_ms / 1000, tz=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
