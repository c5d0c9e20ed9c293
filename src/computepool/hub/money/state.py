"""The hub's memory of money."""

from __future__ import annotations

from dataclasses import dataclass, field

from computepool.core.money.market import Market
from computepool.core.money.terms import Ceilings
from computepool.protocol.money.credits import LeaderboardView
from computepool.protocol.money.market import MarketChart


@dataclass(slots=True)
class MoneyState:
    market: Market
    ceilings: Ceilings = field(default_factory=Ceilings)  #: of jobs that name none
    #: the transfer up to which all earnings were looked at; none: look at everybody's
    matured: int | None = None
    matured_soon: int | None = None  #: the same for owners whose earnings mature sooner
    #: By order; when made, and what.
    boards: dict[str, tuple[int, LeaderboardView]] = field(default_factory=dict)
    charts: dict[str, tuple[int, MarketChart]] = field(default_factory=dict)  #: by span; when made, and what
