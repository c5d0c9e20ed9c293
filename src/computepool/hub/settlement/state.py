"""The hub's memory of results: which programs vary, who disagreed, how long programs run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from computepool.core.money.run_times import RunTimes
from computepool.core.trust.ties import Program, Ties


@dataclass(slots=True)
class SettlementState:
    varying: frozenset[Program] = frozenset()  #: whose results are never the same twice
    ties: Ties = field(default_factory=Ties)
    run_times: RunTimes = field(default_factory=RunTimes)  #: of programs whose runs agreed
    held_looked_at: str = ""  #: the last job with held pay that was looked at for a check
    odd_reports: Counter[str] = field(default_factory=Counter)  #: that changed nothing, by kind
    #: By node and kind, when an event was written about them.
    odd_reports_logged: dict[tuple[str, str], int] = field(default_factory=dict)
