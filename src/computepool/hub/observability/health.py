"""Health of the hub, part by part: a state, a sentence, and what to do about it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from importlib.metadata import version
from types import MappingProxyType

from computepool.core.errors import ComputePoolError
from computepool.core.fleet.node_status import NodeStatus
from computepool.core.words import byte_size, duration, pluralize
from computepool.hub.artifacts.storage.base import place_of
from computepool.hub.context import Hub
from computepool.hub.db import dialect
from computepool.hub.db.session import Connection
from computepool.hub.observability import vital_rows
from computepool.hub.observability.state import LoopState
from computepool.hub.observability.vital_rows import Vitals
from computepool.protocol.health import Health, HealthPart, HealthView, LoopView, VersionCount

_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_SEEN_MS = 2 * _MINUTE_MS
_SLOW_MS = 500
_SKEW_WARN_MS, _SKEW_FAIL_MS = 2_000, 30_000
_GB = 10**9
_DATABASE_AWAY = "Check the database server and DATABASE_URL; the hub continues by itself when it is back."
_WORST: tuple[Health, ...] = ("ok", "note", "warn", "fail")


async def view(hub: Hub) -> HealthView:
    began_ms = hub.now_ms()
    known: Vitals | None
    try:
        known = await hub.store.read(_read, hub)
    except ComputePoolError as error:
        known = None
        found = [_part("database", f"It does not answer: {error.detail}", todo=_DATABASE_AWAY, state="fail")]
    else:
        took_ms = max(0, hub.now_ms() - began_ms)
        found = [_database(hub, known, took_ms=took_ms), *(make(hub, known) for make in _PARTS)]
    loops = [_loop(loop, hub.now_ms()) for loop in hub.observability.loop_health.all()]
    parts = [*found, await _disk(hub), await _artifacts(hub), _loops(loops)]
    state = max((part.state for part in parts), key=_WORST.index)
    return HealthView(
        at_ms=hub.now_ms(),
        state=state,
        sentence=_sentence(parts),
        hub_id=hub.process.hub_id,
        version=version("computepool"),
        started_at_ms=hub.process.started_at_ms,
        parts=sorted(parts, key=lambda part: -_WORST.index(part.state)),
        loops=loops,
        node_versions=[
            VersionCount(version=name, nodes=count)
            for name, count in Counter(known.versions if known else {}).most_common()
        ],
    )


def _read(connection: Connection, hub: Hub) -> Vitals:
    now_ms = hub.now_ms()
    return vital_rows.read(
        connection,
        now_ms=now_ms,
        seen_since_ms=now_ms - _SEEN_MS,
        requested_since_ms=now_ms - round(hub.settings.approval_lifetime_s * 1000),
    )


def _part(
    name: str,
    sentence: str,
    *,
    todo: str = "",
    state: Health | None = None,
    values: Mapping[str, int] = MappingProxyType({}),
) -> HealthPart:
    """Without a state: a warning if there is something to do. `values` are the numbers behind the sentence."""
    state = state or ("warn" if todo else "ok")
    title = name.capitalize()
    return HealthPart(name=name, title=title, state=state, sentence=sentence, todo=todo, values=dict(values))


def _sentence(parts: list[HealthPart]) -> str:
    bad = sorted((part for part in parts if part.state in ("warn", "fail")), key=lambda part: -_WORST.index(part.state))
    if bad:
        return f"{len(bad)} of {len(parts)} parts need attention: {_titles(bad)}."
    notes = [part for part in parts if part.state == "note"]
    return f"Everything works. Worth a look: {_titles(notes)}." if notes else "Everything works."


def _titles(parts: list[HealthPart]) -> str:
    return ", ".join(part.title.lower() for part in parts)


def _database(hub: Hub, known: Vitals, *, took_ms: int) -> HealthPart:
    kind = "SQLite" if dialect.is_sqlite(hub.settings.url) else "PostgreSQL"
    sentence = f"{kind}, {byte_size(known.size_bytes)}; it answered all of this in {took_ms} ms."
    todo = "Check the load and the disk of the database's machine." if took_ms > _SLOW_MS else ""
    return _part("database", sentence, todo=todo, values={"size_bytes": known.size_bytes, "latency_ms": took_ms})


def _queue(hub: Hub, known: Vitals) -> HealthPart:
    if not known.queued:
        return _part("queue", "No job waits for a node.", values={"queued": 0})
    age_ms = max(0, hub.now_ms() - (known.oldest_queued_ms or 0))
    sentence = (
        f"{pluralize(known.queued, 'job waits', 'jobs wait')} for a node, the oldest for {duration(age_ms / 1000)}."
    )
    todo = ""
    if not len(hub.nodes.registry):
        todo = "No node is online; start one, or lend a machine."
    elif age_ms > _HOUR_MS:
        todo = "`pool jobs queue` shows what each kind of job waits for."
    return _part("queue", sentence, todo=todo, values={"queued": known.queued, "oldest_ms": age_ms})


def _nodes(hub: Hub, known: Vitals) -> HealthPart:
    registry, online = hub.nodes.registry, len(hub.nodes.registry)
    values = {"online": online, "enrolled": known.nodes, "resting": known.resting}
    if not known.nodes:
        return _part("nodes", "No machine is lent yet.", todo="Create a code: `pool node code`.", values=values)
    found = Counter(registry.status(session, hub.now_ms()) for session in registry.sessions)
    values |= {status.value: count for status, count in found.items()}
    listed = ", ".join(f"{found[status]} {status.label}" for status in NodeStatus if found[status])
    sentence = f"{online} of {pluralize(known.nodes, 'node')} {'is' if online == 1 else 'are'} online"
    sentence += f": {listed}." if listed else "."
    if known.hubs_live <= 1 and not online:
        todo = "Start an agent (`pool node start`), and check that nodes can reach this hub's address."
        return _part("nodes", sentence, todo=todo, values=values)
    if known.hubs_live <= 1 and not any(status.takes_jobs for status in found):
        todo = "None of them takes other people's jobs; `pool node why NODE` explains one."
        return _part("nodes", sentence, todo=todo, state="note", values=values)
    return _part("nodes", sentence, values=values)


def _clock(hub: Hub, known: Vitals) -> HealthPart:
    """Nodes report how long things took, never the time, so their clocks do not matter here."""
    ahead_ms = max(0, (known.newest_event_ms or 0) - hub.now_ms())
    skew_ms = 0 if known.clock_ms is None else abs(hub.now_ms() - known.clock_ms)
    worst_ms = max(ahead_ms, skew_ms)
    values = {"skew_ms": skew_ms, "event_ahead_ms": ahead_ms}
    if worst_ms <= _SKEW_WARN_MS:
        return _part("clock", "The hub's clock agrees with the clocks it can be compared with.", values=values)
    sentence = f"This hub's clock is {worst_ms} ms off the database's or another hub's."
    state: Health = "fail" if worst_ms > _SKEW_FAIL_MS else "warn"
    return _part("clock", sentence, todo="Set the clocks of all hubs by NTP.", state=state, values=values)


def _versions(_hub: Hub, known: Vitals) -> HealthPart:
    own = version("computepool")
    other = sum(count for name, count in known.versions.items() if name != own)
    if not other:
        return _part("versions", f"The hub and all nodes run {own}.", values={"nodes_other": 0})
    sentence = f"The hub runs {own}; {other} of {sum(known.versions.values())} nodes run another version."
    todo = "Update these nodes when their owners can; they keep working."
    return _part("versions", sentence, todo=todo, state="note", values={"nodes_other": other})


def _hubs(_hub: Hub, known: Vitals) -> HealthPart:
    sentence, todo = f"{pluralize(max(1, known.hubs_live), 'hub serves', 'hubs serve')} this pool.", ""
    if known.hubs_dead:
        sentence = f"{pluralize(known.hubs_dead, 'hub')} of this database disappeared without shutting down."
        todo = "Start them again unless they are meant to be down; the others have taken over their work."
    return _part("hubs", sentence, todo=todo, values={"live": known.hubs_live, "dead": known.hubs_dead})


def _webhooks(_hub: Hub, known: Vitals) -> HealthPart:
    failing, disabled = known.webhooks_failing, known.webhooks_disabled
    values = {"disabled": disabled, "failing": failing}
    if not failing and not disabled:
        return _part("webhooks", "All deliveries have arrived.", values=values)
    sentence = f"{failing} webhooks are failing, {disabled} were disabled."
    todo = "Their owners see why with `pool webhooks`; check that this hub can reach the internet."
    return _part("webhooks", sentence, todo=todo, state=None if failing else "note", values=values)


def _payouts(hub: Hub, known: Vitals) -> HealthPart:
    values = {"waiting": known.payouts_waiting, "unknown": known.payouts_unknown}
    if known.payouts_unknown:
        sentence = f"The bank's answer to {pluralize(known.payouts_unknown, 'payout')} was lost."
        todo = "The hub keeps asking; if that lasts, check the bank's own list (`pool payouts list --all`)."
        return _part("payouts", sentence, todo=todo, values=values)
    if not known.payouts_waiting:
        return _part("payouts", "No payout waits for an administrator.", values=values)
    sentence = f"{pluralize(known.payouts_waiting, 'payout waits', 'payouts wait')} for an administrator."
    state = _waiting_state(hub, known.oldest_payout_ms)
    return _part("payouts", sentence, todo="Approve or reject: `pool payouts list --all`.", state=state, values=values)


def _approvals(hub: Hub, known: Vitals) -> HealthPart:
    """The requests that `pool approvals list` shows, which include payouts."""
    waiting = known.approvals + known.payouts_waiting
    if not waiting:
        return _part("approvals", "No request waits for an administrator.", values={"waiting": 0})
    sentence = f"{pluralize(waiting, 'request waits', 'requests wait')} for an administrator."
    state = _waiting_state(hub, known.oldest_approval_ms, known.oldest_payout_ms)
    todo = "Approve or reject: `pool approvals list`."
    return _part("approvals", sentence, todo=todo, state=state, values={"waiting": waiting})


def _waiting_state(hub: Hub, *since_ms: int | None) -> Health:
    """Of requests to administrators, by the time of the oldest."""
    oldest_ms = min(filter(None, since_ms), default=hub.now_ms())
    return "warn" if hub.now_ms() - oldest_ms > _DAY_MS else "note"


def _backup(hub: Hub, _known: Vitals) -> HealthPart:
    sqlite = dialect.sqlite_file(hub.settings.url)
    how = "pg_dump the database" if sqlite is None else f"sqlite3 {sqlite} '.backup /elsewhere/hub.sqlite'"
    todo = f"Make backups from outside, also while the hub serves: {how}; and keep the folder of artifacts."
    stamp = hub.settings.backup_stamp
    if stamp is None:
        todo += " Let each backup touch a file, and name it in COMPUTEPOOL_BACKUP_STAMP to see its age here."
        return _part("backup", "The hub makes no backups and knows of none.", todo=todo, state="note")
    try:
        age_ms = max(0, hub.now_ms() - round(stamp.stat().st_mtime * 1000))
    except OSError as error:
        return _part("backup", f"No backup has succeeded yet: {stamp}: {error.strerror}.", todo=todo)
    late = age_ms > hub.settings.backup_age_s * 1000
    return _part(
        "backup",
        f"The last backup is {duration(age_ms / 1000)} old.",
        todo=todo if late else "",
        values={"age_ms": age_ms},
    )


_PARTS: tuple[Callable[[Hub, Vitals], HealthPart], ...] = (
    _queue,
    _nodes,
    _clock,
    _versions,
    _hubs,
    _webhooks,
    _payouts,
    _approvals,
    _backup,
)


async def _disk(hub: Hub) -> HealthPart:
    folder = hub.settings.data_dir
    try:
        usage = await hub.process.in_thread(shutil.disk_usage, folder)
    except OSError as error:
        return _part("disk", f"{folder}: {error.strerror}.", todo="Check that the folder exists.", state="fail")
    percent = usage.free * 100 // max(1, usage.total)
    sentence = f"{byte_size(usage.free)} of {byte_size(usage.total)} are free where the hub keeps its data."
    todo = ""
    state: Health | None = None
    if usage.free < _GB // 2 or percent < 2:
        todo = "Free some space now: the hub soon accepts nothing more. Delete old artifacts with `pool artifacts rm`."
        state = "fail"
    elif usage.free < 5 * _GB or percent < 10:
        todo = "Free some space, or keep artifacts for a shorter time (COMPUTEPOOL_ARTIFACT_KEEP_S)."
    return _part(
        "disk", sentence, todo=todo, state=state, values={"free_bytes": usage.free, "total_bytes": usage.total}
    )


async def _artifacts(hub: Hub) -> HealthPart:
    """Whether the store answers when it is asked for an object that does not exist."""
    where = hub.settings.blobs or "the hub's own disk"
    try:
        await hub.process.in_thread(hub.artifacts.blobs.size, place_of("0" * 64, "0" * 16))
    except (ComputePoolError, OSError) as error:
        todo = "Check COMPUTEPOOL_BLOBS, its credentials, and that the hub can reach it."
        return _part("artifacts", f"The store at {where} does not answer: {error}", todo=todo, state="fail")
    return _part("artifacts", f"Files are kept at {where}, which answers.")


def _loops(loops: list[LoopView]) -> HealthPart:
    bad = [loop for loop in loops if loop.state != "ok"]
    if not bad:
        return _part(
            "loops", f"All {len(loops)} background tasks run on time.", values={"loops": len(loops), "failing": 0}
        )
    sentence = f"Behind schedule: {', '.join(loop.name for loop in bad)}."
    todo = "The hub's log says why; a restart loses nothing."
    state = max((loop.state for loop in bad), key=_WORST.index)
    return _part("loops", sentence, todo=todo, state=state, values={"loops": len(loops), "failing": len(bad)})


def _loop(loop: LoopState, now_ms: int) -> LoopView:
    late = loop.silent_ms(now_ms) > max(_MINUTE_MS, 5 * loop.interval_ms)
    state: Health = "fail" if late else "warn" if loop.failures else "ok"
    return LoopView.from_attributes(loop, state=state)
