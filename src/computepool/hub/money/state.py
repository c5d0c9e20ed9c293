"""In-memory state of money."""

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
    #: The transfer up to which earnings were examined; under True, those of owners with the shorter holdback. Without an
    #: entry, the earnings of every account are examined.
    matured: dict[bool, int] = field(default_factory=dict)
    boards: dict[str, tuple[int, LeaderboardView]] = field(default_factory=dict)  #: by order: when made, and the view
    charts: dict[str, tuple[int, MarketChart]] = field(default_factory=dict)  #: by span: when made, and the view
