"""`pool hub check` after every test: the same rules, quick enough to run a thousand times."""

from __future__ import annotations

from computepool.core.errors import InvariantViolation
from computepool.hub.observability.consistency import jobs as consistency
from computepool.hub.observability.invariants import check_all
from computepool.hub.settings import Settings
from computepool.testing import compiled


def check_rules(settings: Settings) -> None:
    """Raises InvariantViolation with a sentence for every rule that the database breaks."""
    compiled.share()
    with consistency.snapshot(settings.url) as connection:
        broken = check_all(connection)
    if broken:
        raise InvariantViolation("\n".join(broken))
