"""`pool hub check` after every test: the same rules, quick enough to run a thousand times."""

from __future__ import annotations

from typing import Any

from computepool.core.errors import InvariantViolation
from computepool.hub.services.invariants import check_all
from computepool.hub.settings import Settings
from computepool.hub.store import consistency


class _Compiled(dict[Any, Any]):
    """Statements as a driver takes them, for all engines: each test has its own, and compiling is most of a check.

    An engine looks a statement up by its own dialect and the statement's shape; the dialect's name is as good.
    """

    @staticmethod
    def _named(key: tuple[Any, ...]) -> tuple[Any, ...]:
        return (key[0].name, *key[1:])

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(self._named(key), default)

    def __setitem__(self, key: tuple[Any, ...], value: Any) -> None:
        super().__setitem__(self._named(key), value)


_COMPILED = _Compiled()


def check_rules(settings: Settings) -> None:
    """Raises InvariantViolation with a sentence for every rule that the database breaks."""
    with consistency.snapshot(settings.url) as connection:
        broken = check_all(connection.execution_options(compiled_cache=_COMPILED))
    if broken:
        raise InvariantViolation("\n".join(broken))
