"""The CPUs of each running job: whole ids for whole cores, shared ids for fractions, and idle ids on top.

`Cpus` computes who holds how much of which id, without I/O or a clock; lanes.py applies it. It lends only ids that the agent
itself may use, and no more than the owner lends.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Collection, Sequence

MILLI = 1000
#: How long an id must have been free before running jobs may borrow it: short jobs come and go without disturbing others.
SETTLED_S = 1.0


def usable_ids() -> tuple[int, ...]:
    """CPUs that the agent itself may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


def lent_ids(usable: Sequence[int], cores: float, *, seed: str) -> tuple[int, ...]:
    """One id per core lent, rounded up. `seed` lets agents on the same machine start at different ids."""
    count = min(len(usable), max(1, math.ceil(cores)))
    if count == len(usable):
        return tuple(usable)
    first = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") % len(usable)
    return tuple(sorted((*usable[first:], *usable[:first])[:count]))


class Cpus:
    """The ids that are lent and who holds them. A holder is a lane."""

    def __init__(self, ids: Sequence[int], cores: float) -> None:
        lent = round(cores * MILLI)
        #: How much of each id may be used; the last of a fractional number of cores is lent in part.
        self._room = {id_: max(1, min(MILLI, lent - place * MILLI)) for place, id_ in enumerate(ids)}
        self._used = dict.fromkeys(ids, 0)
        self._free_since = dict.fromkeys(ids, -math.inf)
        self._parts: dict[str, dict[int, int]] = {}  #: by holder, in thousandths of each id
        self._spare: tuple[int, ...] = ()
        self._elastic: frozenset[str] = frozenset()

    @property
    def lent(self) -> tuple[int, ...]:
        return tuple(self._room)

    @property
    def free(self) -> tuple[int, ...]:
        return tuple(id_ for id_, used in self._used.items() if not used)

    def ids(self, holder: str) -> tuple[int, ...]:
        """The ids that it may use now: its own and, if elastic, spare ones."""
        own = self._parts.get(holder, {})
        return tuple(sorted({*own, *self._spare})) if holder in self._elastic else tuple(sorted(own))

    def cores(self, holder: str) -> float:
        """How much it may use now: its reservation and, if elastic, an equal share of the spare ids."""
        milli = sum(self._parts.get(holder, {}).values())
        if holder in self._elastic:
            milli += sum(self._room[id_] for id_ in self._spare) // len(self._elastic)
        return milli / MILLI

    def reserve(self, holder: str, cores: float, *, near: tuple[int, ...] = ()) -> bool:
        """Reserve ids, and take back borrowed ones. True if the ids of other holders changed.

        Never refuses: if the hub over-committed the node, ids are shared. `near`: ids to prefer, because the worker already
        runs there.
        """
        if len(near) * MILLI == round(cores * MILLI) and holder not in self._parts and self._idle(near):
            self._parts[holder] = dict.fromkeys(near, MILLI)
            self._used.update(self._parts[holder])
            return False
        for id_, milli in self._parts.pop(holder, {}).items():
            self._used[id_] -= milli
        whole, rest = divmod(max(1, round(cores * MILLI)), MILLI)
        moved = whole > len(self._whole_ids()) and self._compact()
        mine = dict.fromkeys(self._whole_ids()[:whole], MILLI)
        for id_ in mine:
            self._used[id_] += MILLI
        rest += (whole - len(mine)) * MILLI
        self._parts[holder] = mine
        self._place(holder, rest)
        taken = self._parts[holder].keys() & set(self._spare)
        self._spare = tuple(id_ for id_ in self._spare if id_ not in taken)
        return moved or bool(taken and self._elastic)

    def release(self, holder: str, now: float) -> None:
        self._elastic -= {holder}
        for id_, milli in self._parts.pop(holder, {}).items():
            self._used[id_] -= milli
            if not self._used[id_]:
                self._free_since[id_] = now

    def stretch(self, holders: Collection[str], now: float) -> None:
        """Let exactly these holders use ids that have been free for a while."""
        self._elastic = frozenset(holders) & self._parts.keys()
        settled = [id_ for id_ in self._whole_ids() if now - self._free_since[id_] >= SETTLED_S]
        self._spare = tuple(settled) if self._elastic else ()

    def _idle(self, ids: tuple[int, ...]) -> bool:
        """True if all are free, lent in full, and not borrowed."""
        return all(self._used.get(id_, 1) == 0 and self._room[id_] == MILLI and id_ not in self._spare for id_ in ids)

    def _whole_ids(self) -> list[int]:
        """Ids that are free and lent in full; those that nobody borrows come first."""
        free = [id_ for id_ in self.free if self._room[id_] == MILLI]
        return sorted(free, key=lambda id_: id_ in self._spare)

    def _place(self, holder: str, milli: int) -> None:
        """Place part of a core on one id if it fits there, else on several, else on the least used."""
        mine = self._parts[holder]
        fitting = [id_ for id_ in self._room if id_ not in mine and self._free_cores(id_) >= milli]
        # The fullest that has room: whole ids stay whole.
        best = min(fitting, key=lambda id_: (self._free_cores(id_), id_ in self._spare), default=None)
        for id_ in [best] if best is not None else sorted(self._room, key=self._free_cores, reverse=True):
            part = min(milli, self._free_cores(id_)) if id_ not in mine else 0
            if part > 0:
                mine[id_] = part
                self._used[id_] += part
                milli -= part
        if milli > 0 and self._room:  # More than is lent: share an id.
            id_ = min(self._room, key=lambda id_: (id_ in mine, self._used[id_]))
            mine[id_] = mine.get(id_, 0) + milli
            self._used[id_] += milli

    def _free_cores(self, id_: int) -> int:
        return self._room[id_] - self._used[id_]

    def _compact(self) -> bool:
        """Pack partial reservations together to free whole ids. True if anything moved."""
        before = {holder: dict(parts) for holder, parts in self._parts.items()}
        loose: list[tuple[str, int]] = []
        for holder, parts in self._parts.items():
            pieces = {id_: milli for id_, milli in parts.items() if milli < MILLI}
            loose += [(holder, sum(pieces.values()))] if pieces else []
            for id_, milli in pieces.items():
                del parts[id_]
                self._used[id_] -= milli
        # Over as few ids as possible, one after the other; the one that is lent in part comes first.
        order = sorted((id_ for id_ in self._room if not self._used[id_]), key=lambda id_: self._room[id_])
        for holder, milli in loose:
            left = milli
            for id_ in order:
                part = min(left, self._free_cores(id_))
                if part > 0:
                    self._parts[holder][id_] = part
                    self._used[id_] += part
                    left -= part
            if left:
                self._place(holder, left)
        return before != self._parts
