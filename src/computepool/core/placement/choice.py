"""Decides if the pool chose the node of a job, or its submitter did.

Friends can make each other a record: one submits, the others run and agree, and a private tag keeps everybody else out. So what
a node does counts for its record only where the submitter's wishes left the pool a choice. What a job needs is such a wish, too,
until nodes with a record have it: anybody can say that his machine has 3 TB of memory, or Python 3.29.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from computepool.core.fleet.features import Mask
from computepool.core.fleet.fleet import Fleet
from computepool.core.placement.gates import affordable, could_run
from computepool.core.resources import Requirements, Shape

#: Owners that the pool must have been able to choose from, or all that there are.
CHOICE_MIN: Final = 3
#: Wishes may leave out at most every second owner who could have run it without them: they no more than double the odds that
#: a friend is drawn.
NARROWED_MAX: Final = 2
_ANY: Final = Requirements(cpu_milli=0, ram_mb=0, disk_mb=0)


def is_open(*, able: int, proven: int, similar: int, everybody: int) -> bool:
    """By numbers of owners: who may run it, who of these has a record, who says to have what it needs, and who lends at all."""
    if able < min(CHOICE_MIN, everybody):
        return False
    return able * NARROWED_MAX >= (similar if proven >= CHOICE_MIN else everybody)


def chosen_by_pool(fleet: Fleet, shape: Shape) -> bool:
    """Whether who runs this is the pool's choice. The submitter's own nodes are nobody's choice but his."""
    rows = slice(0, fleet.rows)
    able = could_run(fleet, shape, rows) & affordable(fleet, shape, rows)
    relaxed = replace(shape.requirements.without_wishes(), node="", mesh_version="")
    needs = replace(shape, requirements=relaxed, ceiling=None)
    return is_open(
        able=_owners(fleet, shape, able),
        proven=_owners(fleet, shape, able & ~fleet.table.newcomer[rows]),
        similar=_owners(fleet, shape, could_run(fleet, needs, rows)),
        everybody=_owners(fleet, shape, could_run(fleet, replace(needs, requirements=_ANY), rows)),
    )


def _owners(fleet: Fleet, shape: Shape, mask: Mask) -> int:
    found = np.unique(fleet.table.owner[: fleet.rows][mask])
    return int(np.count_nonzero(found != fleet.accounts.find(shape.account)))
