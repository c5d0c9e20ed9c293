"""Comparison of results of a job, as its submitter chose; stored with the job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from computepool.core.trust.comparison import Tolerance
from computepool.hub.jobs.rows import JobRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """By tolerance, by a function, or by neither: then results are the same if their digests are."""

    within: Tolerance | None = None
    function: str | None = None  #: digest of the spec that calls it
    longest_ms: int = 0  #: time limit of a call
    answers: Mapping[str, bool] = field(default_factory=dict)  #: by pair of results
    pair: str = ""  #: the pair that it is being called with

    @classmethod
    def of(cls, job: JobRow) -> Comparison:
        if job.compare is None:
            return EXACT
        fields = json.loads(job.compare)
        if "tolerance" in fields:
            return cls(within=Tolerance(*fields["tolerance"]))
        return cls(function=fields["function"], longest_ms=fields["ms"], answers=fields["answers"], pair=fields["pair"])

    def __str__(self) -> str:
        if self.within is not None:
            return str(self.within)
        return "exact" if self.function is None else "function"

    def row(self) -> str | None:
        if self.within is not None:
            return json.dumps({"tolerance": [self.within.relative, self.within.absolute]})
        if self.function is None:
            return None
        rest = {"ms": self.longest_ms, "answers": dict(self.answers), "pair": self.pair}
        return json.dumps({"function": self.function, **rest})

    def with_answer(self, pair: str, same: bool) -> Comparison:
        return replace(self, answers={**self.answers, pair: same}, pair="")


EXACT = Comparison()
