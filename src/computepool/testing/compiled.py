"""SQL compiled once for all databases of a test run: every test has engines of its own, and each would compile all of it anew."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, event


class _Compiled(dict[Any, Any]):
    """Statements as a driver takes them. An engine looks one up by its own dialect and the statement's shape; the
    dialect's name is as good."""

    @staticmethod
    def _with_names(key: tuple[Any, ...]) -> tuple[Any, ...]:
        return (key[0].name, *key[1:])

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(self._with_names(key), default)

    def __setitem__(self, key: tuple[Any, ...], value: Any) -> None:
        super().__setitem__(self._with_names(key), value)


_COMPILED = _Compiled()


def share() -> None:
    """From now on, for every engine of this process."""
    if not event.contains(Engine, "engine_connect", _use):
        event.listen(Engine, "engine_connect", _use)


def _use(connection: Connection) -> None:
    connection.execution_options(compiled_cache=_COMPILED)
