"""Masking: replaces secret values in output and in error texts, wherever one read of a stream ends and the next begins."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace
from itertools import pairwise
from typing import Final

MASK: Final = b"***"
#: Shorter values are not masked: they would occur in any text.
MASKED_MIN: Final = 4
#: Longer values are masked in pieces, which bounds what a stream holds back, and the time that takes.
_PIECE_MAX: Final = 256


class Masker:
    """Masks one stream. What may be the beginning of a value is held back until it is known."""

    def __init__(self, values: Iterable[str]) -> None:
        self._pieces = sorted({piece for value in values for piece in _pieces(value.strip().encode())})
        self._tail_max = max(map(len, self._pieces), default=1) - 1
        self._held = b""
        self._after_mask = False  #: nothing followed the last mask yet: pieces of one value become one mask

    def feed(self, data: bytes, *, final: bool = False) -> bytes:
        """The masked text, as far as it is known. `final`: nothing follows."""
        buffer, self._held = self._held + data, b""
        open_places = [] if final else self._open_places(buffer)
        matches = [(at, -len(piece), piece) for piece in self._pieces if (at := buffer.find(piece)) >= 0]
        heapify(matches)
        found: list[bytes] = []
        start = 0
        while True:
            while open_places and open_places[-1] < start:
                open_places.pop()
            end = open_places[-1] if open_places else len(buffer)
            while matches and matches[0][0] < start:  # within what was just masked
                piece = matches[0][2]
                if (at := buffer.find(piece, start)) >= 0:
                    heapreplace(matches, (at, -len(piece), piece))
                else:
                    heappop(matches)
            if not matches or matches[0][0] >= end:
                break
            at, _, piece = matches[0]  # the first, and of those the longest
            self._add(found, buffer[start:at])
            if not self._after_mask:
                found.append(MASK)
                self._after_mask = True
            start = at + len(piece)
        self._add(found, buffer[start:end])
        self._held = buffer[end:]
        return b"".join(found)

    def end(self) -> bytes:
        """What was held back and is no value after all."""
        return self.feed(b"", final=True)

    def break_off(self) -> bytes:
        """Call it where a part of the stream is missing: the beginning of a value could be cut off there."""
        cut, self._held = bool(self._held), b""
        return MASK if cut else b""

    def _open_places(self, buffer: bytes) -> list[int]:
        """The places from which the rest is the beginning of a piece, so that the next data decides; last one first."""
        tail = range(len(buffer) - 1, max(0, len(buffer) - self._tail_max) - 1, -1)
        return [at for at in tail if self._begins_piece(buffer[at:])]

    def _begins_piece(self, rest: bytes) -> bool:
        place = bisect_right(self._pieces, rest)  # after `rest` itself, which would be complete
        return place < len(self._pieces) and self._pieces[place].startswith(rest)

    def _add(self, found: list[bytes], data: bytes) -> None:
        if data:
            found.append(data)
            self._after_mask = False


def _pieces(value: bytes) -> list[bytes]:
    """Equal pieces, so that none is short."""
    if len(value) < MASKED_MIN:
        return []
    count = -(-len(value) // _PIECE_MAX)
    ends = [len(value) * place // count for place in range(count + 1)]
    return [value[start:end] for start, end in pairwise(ends)]


def mask_text(text: str, values: Iterable[str]) -> str:
    return Masker(values).feed(text.encode("utf-8", "replace"), final=True).decode("utf-8", "replace")
