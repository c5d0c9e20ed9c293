"""The ticks of a cron expression in a time zone.

Summer time is as in Debian's cron: what would fall into the missing hour runs right after it, and what runs at fixed hours
runs once in the hour that exists twice.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from computepool.core.errors import BadRequest

_FIELDS = 5
#: Ticks whose distances are compared with the shortest one allowed.
_COMPARED = 200


class Cron:
    """Raises BadRequest if the expression or the time zone is not valid, or if it never fires."""

    def __init__(self, expression: str, tz: str) -> None:
        self._expression, self._zone = expression, _zone(tz)
        if len(expression.split()) != _FIELDS:
            raise BadRequest(
                f"cron: {expression!a} needs five fields: minute, hour, day of the month, month, day of the week.",
                field="cron",
            )
        try:
            CronSim(expression, datetime(2000, 1, 1, tzinfo=UTC))
        except CronSimError as error:
            problem = str(error).removeprefix("Bad ")
            raise BadRequest(
                f"cron: {expression!a} is not valid, or never fires: see its {problem}.", field="cron"
            ) from error

    def after(self, at_ms: int, count: int = 1) -> list[int]:
        """The next ticks; none if there are none in the coming decades."""
        return [_ms(tick) for tick in islice(CronSim(self._expression, self._local(at_ms)), count)]

    def latest(self, at_ms: int) -> int | None:
        """The last tick that is not later."""
        ticks = CronSim(self._expression, self._local(at_ms) + timedelta(seconds=1), reverse=True)
        return next((tick_ms for tick in ticks if (tick_ms := _ms(tick)) <= at_ms), None)

    def check(self, now_ms: int, *, interval_min_s: float) -> None:
        """Raises BadRequest if it never fires, or more often than allowed."""
        ticks = self.after(now_ms, _COMPARED)
        if not ticks:
            raise BadRequest(f"cron: {self._expression!a} never fires; no such day exists.", field="cron")
        if any(later - earlier < interval_min_s * 1000 for earlier, later in pairwise(ticks)):
            raise BadRequest(
                f"cron: this hub runs a schedule every {interval_min_s:g} seconds at most, and {self._expression!a} fires"
                " more often.",
                field="cron",
            )

    def _local(self, at_ms: int) -> datetime:
        return datetime.fromtimestamp(at_ms // 1000, self._zone)


@lru_cache(maxsize=1024)
def cron_of(expression: str, tz: str) -> Cron:
    return Cron(expression, tz)


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError) as error:
        raise BadRequest(f"tz: {name!a} is not a time zone; use a name such as Europe/Berlin.", field="tz") from error


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
