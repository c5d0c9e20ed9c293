"""CSV files for spreadsheets: no text in them can be taken for a formula."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass

from computepool.core.money.money import CREDIT

#: A spreadsheet takes a cell that begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")


@dataclass(frozen=True, slots=True)
class Amount:
    """Credits as every program reads them: no thousands separator, always six decimals."""

    micro: int

    def __str__(self) -> str:
        whole, fraction = divmod(abs(self.micro), CREDIT)
        return f"{'-' if self.micro < 0 else ''}{whole}.{fraction:06d}"


def csv_lines(rows: Iterable[Iterable[str | int | Amount]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerows([safe_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return out.getvalue()


def safe_cell(text: str) -> str:
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text
