"""The owner's rules on this node: received from the hub, saved, and applied to every job of other accounts.

The hub applies them when it places jobs, but it may be wrong. Unreadable rules allow nothing until the hub has sent
readable ones.
"""

from __future__ import annotations

import logging
from pathlib import Path

from pydantic import ValidationError

from computepool.agent.hub_link.identity import write_private
from computepool.core.placement.rules import Demand, Rules
from computepool.protocol.nodes.rules import NO_RULES, NodeRules, rules_digest

_log = logging.getLogger(__name__)

FILE = "rules.json"


class OwnerRules:
    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE
        self.digest = ""  #: if the hub has other rules, it sends them with its next reply
        self._rules: Rules | None = None
        try:
            self._parse(self._path.read_text())
        except FileNotFoundError:
            self._parse(NO_RULES)
        except (OSError, UnicodeError) as error:
            _log.error("%s cannot be read: %s", self._path, error)
            self.digest = "unreadable"

    def update(self, body: str) -> None:
        """Apply new rules. If they cannot be saved, the hub sends them again after the next start."""
        try:
            write_private(self._path, body.encode())
        except (OSError, UnicodeError) as error:
            _log.error("cannot save the owner's rules: %s", error)
        self._parse(body)
        _log.info("the owner's rules are now %s", body)

    @property
    def ram_mb_max(self) -> int | None:
        return None if self._rules is None else self._rules.ram_mb_max

    def refusals(self, demand: Demand) -> list[str]:
        if self._rules is None:
            return ["the owner's rules cannot be read on this node"]
        return self._rules.refusals(demand)

    def _parse(self, body: str) -> None:
        self.digest = rules_digest(body)
        try:
            self._rules = NodeRules.model_validate_json(body).rules()
        except ValidationError as error:
            _log.error("cannot read the owner's rules, so only the owner's jobs run: %s", error)
            self._rules, self.digest = None, "unreadable"
