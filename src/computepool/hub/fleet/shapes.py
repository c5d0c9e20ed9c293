"""Shapes, which the allocator places, made from a job's requirements and its row."""

from __future__ import annotations

from computepool.core.resources import Requirements, Shape


def shape_of(
    requirements: Requirements,
    account: str,
    *,
    ceiling: int | None = None,
    avoid_node: str = "",
    avoid_owners: str = "",
    pinned: str = "",
    own: bool = False,
) -> Shape:
    """`avoid_owners`: separated by commas, as stored. `pinned`: the host where it asked to resume; `own`: its submitter's."""
    return Shape(
        requirements.pin_to(pinned, own=own) if pinned else requirements,
        account,
        avoid_node=avoid_node,
        ceiling=ceiling,
        avoid_owners=frozenset(filter(None, avoid_owners.split(","))),
    )
