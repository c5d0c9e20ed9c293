"""Decides whether the pool chose the node of a job, or its submitter did.

Colluding accounts can make each other a record: one submits, the others run and agree, and a private tag excludes
everybody else. So a job counts for a node's record only if the submitter's selectors left the pool a choice. Resource
needs count as selectors, too, until nodes with a record meet them: anybody can claim 3 TB of memory, or Python 3.29.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from computepool.core.fleet.features import Mask
from computepool.core.fleet.fleet import Fleet
from computepool.core.placement.gates import affordable, could_run
from computepool.core.resources import Requirements, Shape

#: The pool must have been able to choose among this many owners, or among all of them.
CHOICE_MIN: Final = 3
#: Selectors may exclude at most every second owner who could otherwise run the job, so that they at most double the odds
#: that an accomplice is drawn.
NARROWED_MAX: Final = 2
_ANY: Final = Requirements(cpu_milli=0, ram_mb=0, disk_mb=0)


def is_open(*, able: int, proven: int, similar: int, everybody: int) -> bool:
    """From numbers of owners: `able` may run the job, `proven` of these have a record, `similar` claim the resources it
    needs, and `everybody` lends at all.
    """
    if able < min(CHOICE_MIN, everybody):
        return False
    return able * NARROWED_MAX >= (similar if proven >= CHOICE_MIN else everybody)


def is_chosen_by_pool(fleet: Fleet, shape: Shape) -> bool:
    """Whether the pool chooses who runs this shape. The submitter's own nodes do not count."""
    rows = slice(0, fleet.rows)
    able = could_run(fleet, shape, rows) & affordable(fleet, shape, rows)
    relaxed = replace(shape.requirements.without_selectors(), node="", mesh_version="")
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
