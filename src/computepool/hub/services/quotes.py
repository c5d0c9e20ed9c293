"""What a job will cost, when it will start, and what a provider would earn by it: answered here, computed nowhere else."""

from __future__ import annotations

import math
from weakref import WeakKeyDictionary

from computepool.core import terms as core_terms
from computepool.core.resources import Requirements
from computepool.core.terms import Places, Terms
from computepool.hub.registry import Registry
from computepool.hub.services.context import Hub

__all__ = ["Terms", "terms"]

#: Soft state beside the registry it is computed from; it goes with it.
_places: WeakKeyDictionary[Registry, Places] = WeakKeyDictionary()


def terms(
    hub: Hub,
    wanted: Requirements,
    account: str,
    *,
    timeout_s: float,
    items: int,
    max_price: int | None,
    budget: int | None,
) -> Terms:
    """The ceiling of a submission and the money to set aside for it. Called for every one: it must stay quick."""
    ceiling = _default_ceiling(hub, wanted, account) if max_price is None else max_price
    return core_terms.agree(
        ceiling=ceiling, timeout_ms=math.ceil(timeout_s * 1000), items=items, budget=budget
    )


def _default_ceiling(hub: Hub, wanted: Requirements, account: str) -> int:
    known = _places.get(hub.registry)
    if known is None:
        known = _places[hub.registry] = Places()
    places = known.find(hub.registry.fleet, wanted, account, now_ms=hub.now_ms())
    # Right after a start nobody is connected yet; the prices of the zones are.
    return core_terms.default_ceiling(
        hub.market, (places or core_terms.likely_places(hub.market, wanted)).items()
    )
