"""Gates of what is on a node: packages, images, tags and properties; and how much of it a node already has."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from computepool.core import expressions
from computepool.core.expressions import Expression, Has, Not
from computepool.core.fleet.features import Feature, Mask, Rows, image_feature
from computepool.core.fleet.fleet import Fleet
from computepool.core.resources import ANY_REGISTRY, PACKAGES, UPLOADED, Shape


def software(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """An environment of its owner satisfies the dependencies, or the node installs them."""
    needs = shape.requirements
    if not needs.software:
        return None
    installs = np.zeros_like(fleet.table.live[rows]) if needs.offered_only else fleet.table.installs[rows]
    offered = rows_that_offer(fleet, shape, rows)
    return installs if offered is None else installs | offered


def rows_that_offer(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """The rows with an environment that satisfies the job's dependencies; None if there are none."""
    needs = shape.requirements
    if not needs.software or needs.image_source:  # an environment does not fit to the files of an image
        return None
    return fleet.software.offers(needs.software, needs.pythons, rows)


def warm_count(fleet: Fleet, shape: Shape, rows: Rows) -> NDArray[np.float32]:
    """How many of the things that take long to fetch each row has. An environment has the packages it satisfies."""
    count = np.zeros(fleet.table.live[rows].shape, np.float32)
    for key in shape.requirements.warm:
        held = fleet.warm.has(key, rows)
        offered = rows_that_offer(fleet, shape, rows) if key.startswith(PACKAGES) else None
        count += held if offered is None else held | offered
    return count


def image(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    """The owner lets the image come from there. Nodes without a sandbox name no source, not even uploads."""
    source = shape.requirements.image_source
    if not source:
        return None
    mask = fleet.features.has(image_feature(source), rows)
    return mask if source == UPLOADED else mask | fleet.features.has(image_feature(ANY_REGISTRY), rows)


def requirement(fleet: Fleet, shape: Shape, rows: Rows) -> Mask | None:
    text = shape.requirements.require
    if not text:
        return None
    return find_matching(expressions.parse(text), lambda feature: fleet.features.has(feature, rows))


def find_matching(expression: Expression, has: Callable[[Feature], Mask]) -> Mask:
    """The rows that meet the expression. `has`: the rows with a tag or property."""
    if isinstance(expression, Has):
        return has(expression.feature)
    if isinstance(expression, Not):
        return ~find_matching(expression.inner, has)
    masks = (find_matching(part, has) for part in expression.parts)
    mask: Mask = (np.logical_and if expression.is_and else np.logical_or).reduce(list(masks))
    return mask
