"""Uptime of nodes, as shown to everybody who is signed in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from computepool.core.money.pricing import HOUR_MS
from computepool.core.trust import uptime as rules
from computepool.core.trust.uptime import SPANS_HOURS, Span, UptimeShare
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.nodes import uptime_rows
from computepool.hub.nodes.rows import NodeRow
from computepool.protocol.nodes.mesh import Uptime, UptimeView

_LONGEST_MS = max(SPANS_HOURS) * HOUR_MS
_PERCENT_PPM = 10_000


def load(hub: Hub, connection: Connection, node_ids: Iterable[str]) -> dict[str, list[Span]]:
    return uptime_rows.of_nodes(connection, node_ids, since_ms=hub.now_ms() - _LONGEST_MS)


def view(hub: Hub, row: NodeRow, past: Sequence[Span], *, online: bool) -> UptimeView | None:
    """None for a node that has not polled since uptimes are recorded."""
    if row.known_since_ms is None or row.online_since_ms is None:
        return None
    now_ms = hub.now_ms()
    session = hub.nodes.registry.get(row.id)
    seen_ms = row.last_seen_ms if session is None else max(session.seen_ms, row.last_seen_ms or 0)
    last = row.online_since_ms, now_ms if online else seen_ms or row.online_since_ms
    shares = rules.shares([*past, last], known_since_ms=row.known_since_ms, now_ms=now_ms)
    return UptimeView(
        online_since_ms=row.online_since_ms if online else None,
        known_since_ms=row.known_since_ms,
        spans=[Uptime.from_attributes(share, share_ppm=share.ppm) for share in shares],
        sentence=_sentence(shares),
    )


def _sentence(shares: Sequence[UptimeShare]) -> str:
    day, _, month = shares
    if month.known_ms < HOUR_MS:
        return "It has been known for less than an hour, too short for a figure."
    sentence = f"Online {_percent(day)} of the last 24 hours"
    days = month.known_ms // (24 * HOUR_MS)
    return f"{sentence}, {_percent(month)} of the last {days} days." if days > 1 else f"{sentence}."


def _percent(share: UptimeShare) -> str:
    """Rounded down, so that only an uninterrupted time is 100 %."""
    whole, rest = divmod(share.ppm, _PERCENT_PPM)
    return f"{whole} %" if whole in (0, 100) or not rest else f"{whole}.{rest * 10 // _PERCENT_PPM} %"


async def prune(hub: Hub) -> None:
    await hub.store.write(lambda tx: uptime_rows.prune(tx, before_ms=tx.now_ms - _LONGEST_MS))
