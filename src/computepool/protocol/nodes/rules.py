"""Wire models of an owner's rules for a node (docs/node.md)."""

from __future__ import annotations

import hashlib
from typing import Annotated

from pydantic import Field

from computepool.core.placement.rules import NAMES_MAX, Rules
from computepool.protocol.base import Name, Reply, Request, Tag
from computepool.protocol.jobs.jobs import MB_MAX, TIMEOUT_MAX_S

Submitters = Annotated[list[Name], Field(max_length=NAMES_MAX)]
Labels = Annotated[list[Tag], Field(max_length=NAMES_MAX)]
Most = Annotated[int, Field(ge=1, le=MB_MAX)]


class NodeRules(Request):
    """What other accounts' jobs may do on a node. Omitted fields allow everything; the owner's own jobs are unrestricted."""

    allow_submitters: Submitters = []  #: account ids or names; if not empty, only their jobs
    deny_submitters: Submitters = []
    allow_labels: Labels = []  #: if not empty, a job must have one of them
    deny_labels: Labels = []
    network: bool = True  #: jobs that list hosts to reach, where the node was started with --net
    gpus: bool = True
    minutes_max: int | None = Field(default=None, ge=1, le=TIMEOUT_MAX_S // 60)  #: of a job's time limit
    ram_mb_max: Most | None = None
    disk_mb_max: Most | None = None
    #: minimum reputation of a submitter; only the hub can check it
    score_min: float = Field(default=0, ge=0, le=1)

    def rules(self) -> Rules:
        return Rules(
            allow_submitters=frozenset(self.allow_submitters),
            deny_submitters=frozenset(self.deny_submitters),
            allow_labels=frozenset(label.lower() for label in self.allow_labels),
            deny_labels=frozenset(label.lower() for label in self.deny_labels),
            network=self.network,
            gpus=self.gpus,
            minutes_max=self.minutes_max,
            ram_mb_max=self.ram_mb_max,
            disk_mb_max=self.disk_mb_max,
            score_min=self.score_min,
        )

    def body(self) -> str:
        return self.model_dump_json(exclude_defaults=True)


NO_RULES = NodeRules().body()


def rules_digest(body: str) -> str:
    """Empty without rules, so that an agent that never received any is up to date."""
    return "" if body == NO_RULES else hashlib.sha256(body.encode()).hexdigest()[:32]


class NodeRulesView(Reply):
    node_id: str
    rules: NodeRules
    sentences: list[str]  #: each rule as a sentence; empty: the node takes every job that fits
