"""SQL compiled once for all databases of a test run. Each test has its own engines, which would compile it all again."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, event


class _Compiled(dict[Any, Any]):
    """Compiled statements. An engine looks them up by its own dialect object, for which the dialect's name will do."""

    @staticmethod
    def _with_names(key: tuple[Any, ...]) -> tuple[Any, ...]:
        return (key[0].name, *key[1:])

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(self._with_names(key), default)

    def __setitem__(self, key: tuple[Any, ...], value: Any) -> None:
        super().__setitem__(self._with_names(key), value)


_COMPILED = _Compiled()


def share() -> None:
    """Share compiled statements between all engines of this process from now on."""
    if not event.contains(Engine, "engine_connect", _use):
        event.listen(Engine, "engine_connect", _use)


def _use(connection: Connection) -> None:
    connection.execution_options(compiled_cache=_COMPILED)
