"""Health of the hub, part by part, in words: what is well, what is not, and what to do about it."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from importlib.metadata import version

from computepool.core.errors import ComputePoolError
from computepool.core.fleet.node_status import NodeStatus
from computepool.core.words import byte_size, counted
from computepool.hub.artifacts.storage.base import place_of
from computepool.hub.context import Hub
from computepool.hub.db import dialect
from computepool.hub.db.session import Connection
from computepool.hub.observability import vital_rows
from computepool.hub.observability.loop_health import LoopState
from computepool.hub.observability.vital_rows import Vitals
from computepool.protocol.health import Health, HealthPart, HealthView, LoopView, VersionCount

_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000
_SEEN_MS = 2 * _MINUTE_MS
_SLOW_MS = 500
_SKEW_WARN_MS, _SKEW_FAIL_MS = 2_000, 30_000
_GB = 10**9
_WORST: tuple[Health, ...] = ("ok", "note", "warn", "fail")


async def view(hub: Hub) -> HealthView:
    began_ms = hub.now_ms()
    known: Vitals | None
    try:
        known = await hub.store.read(lambda connection: _read(hub, connection))
    except ComputePoolError as error:
        known = None
        found = [_part("database", "fail", f"It does not answer: {error.detail}", todo=_DATABASE_AWAY)]
    else:
        took_ms = max(0, hub.now_ms() - began_ms)
        found = [_database(hub, known, took_ms=took_ms), *(make(hub, known) for make in _PARTS)]
    loops = [_loop(beat, hub.now_ms()) for beat in hub.observability.loop_health.all()]
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
        node_versions=_node_versions(known),
    )


_DATABASE_AWAY = "Look at the database server and at DATABASE_URL; the hub goes on by itself when it is back."


def _read(hub: Hub, connection: Connection) -> Vitals:
    now_ms = hub.now_ms()
    return vital_rows.read(
        connection,
        now_ms=now_ms,
        seen_since_ms=now_ms - _SEEN_MS,
        requested_since_ms=now_ms - round(hub.settings.approval_lifetime_s * 1000),
    )


def _part(
    name: str, state: Health, sentence: str, *, todo: str = "", values: dict[str, int] | None = None
) -> HealthPart:
    return HealthPart(
        name=name, title=name.capitalize(), state=state, sentence=sentence, todo=todo, values=values or {}
    )


def _sentence(parts: list[HealthPart]) -> str:
    bad = [part for part in parts if part.state in ("warn", "fail")]
    notes = ", ".join(part.title.lower() for part in parts if part.state == "note")
    if not bad:
        return f"Everything works. Worth a look: {notes}." if notes else "Everything is well."
    words = ", ".join(part.title.lower() for part in sorted(bad, key=lambda part: -_WORST.index(part.state)))
    return f"{len(bad)} of {len(parts)} parts need a look: {words}."


def _ago(ms: int) -> str:
    """A length of time in words a person would use."""
    for unit_ms, word in ((_DAY_MS, "day"), (_HOUR_MS, "hour"), (_MINUTE_MS, "minute")):
        if ms >= unit_ms:
            return counted(ms // unit_ms, word)
    return f"{max(0, ms) // 1000} s"


# the parts


def _database(hub: Hub, known: Vitals, *, took_ms: int) -> HealthPart:
    kind = "SQLite" if dialect.is_sqlite(hub.settings.url) else "PostgreSQL"
    words = f"{kind}, {byte_size(known.size_bytes)}; it answered all of this in {took_ms} ms."
    values = {"size_bytes": known.size_bytes, "latency_ms": took_ms}
    if took_ms > _SLOW_MS:
        todo = "Look at the load and the disk of the database's machine."
        return _part("database", "warn", words, todo=todo, values=values)
    return _part("database", "ok", words, values=values)


def _queue(hub: Hub, known: Vitals) -> HealthPart:
    if not known.queued:
        return _part("queue", "ok", "No job waits for a node.", values={"queued": 0})
    age_ms = max(0, hub.now_ms() - (known.oldest_queued_ms or 0))
    words = f"{counted(known.queued, 'job waits', 'jobs wait')} for a node, the oldest for {_ago(age_ms)}."
    values = {"queued": known.queued, "oldest_ms": age_ms}
    if not len(hub.nodes.registry):
        return _part(
            "queue", "warn", words, todo="No node is online; start one, or lend a machine.", values=values
        )
    if age_ms > _HOUR_MS:
        todo = "`pool jobs queue` says what each kind of job waits for."
        return _part("queue", "warn", words, todo=todo, values=values)
    return _part("queue", "ok", words, values=values)


def _nodes(hub: Hub, known: Vitals) -> HealthPart:
    online = len(hub.nodes.registry)
    values = {"online": online, "enrolled": known.nodes, "resting": known.resting}
    if not known.nodes:
        return _part(
            "nodes", "warn", "No machine is lent yet.", todo="Make a code: `pool node code`.", values=values
        )
    found = Counter(
        hub.nodes.registry.status(session, hub.now_ms()) for session in hub.nodes.registry.sessions
    )
    values |= {status.value: count for status, count in found.items()}
    listed = ", ".join(f"{found[status]} {status.label}" for status in NodeStatus if found[status])
    words = f"{online} of {counted(known.nodes, 'node')} {'is' if online == 1 else 'are'} here"
    words += f": {listed}." if listed else "."
    if not online and known.hubs_live <= 1:
        todo = "Start an agent (`pool node start`), and see that nodes reach this hub's address."
        return _part("nodes", "warn", words, todo=todo, values=values)
    if online and not any(status.takes_jobs for status in found) and known.hubs_live <= 1:
        todo = "None of them takes jobs of everybody; `pool node why NODE` says what keeps one from work."
        return _part("nodes", "note", words, todo=todo, values=values)
    return _part("nodes", "ok", words, values=values)


def _clock(hub: Hub, known: Vitals) -> HealthPart:
    """Nodes say how long things took, never what time it is, so their clocks do not matter here."""
    ahead_ms = max(0, (known.newest_event_ms or 0) - hub.now_ms())
    skew_ms = 0 if known.clock_ms is None else abs(hub.now_ms() - known.clock_ms)
    worst_ms = max(ahead_ms, skew_ms)
    values = {"skew_ms": skew_ms, "event_ahead_ms": ahead_ms}
    if worst_ms > _SKEW_WARN_MS:
        state: Health = "fail" if worst_ms > _SKEW_FAIL_MS else "warn"
        words = f"This hub's clock is {worst_ms} ms off the database's or another hub's."
        return _part("clock", state, words, todo="Let NTP set the clocks of all hubs.", values=values)
    return _part("clock", "ok", "The hub's clock agrees with what it can be compared with.", values=values)


def _versions(hub: Hub, known: Vitals) -> HealthPart:
    own = version("computepool")
    other = sum(count for name, count in known.versions.items() if name != own)
    words = f"The hub runs {own}; {other} of {sum(known.versions.values())} nodes run another version."
    if other:
        todo = "Update these nodes when their owners can; they go on working."
        return _part("versions", "note", words, todo=todo, values={"nodes_other": other})
    return _part("versions", "ok", f"The hub and all nodes run {own}.", values={"nodes_other": 0})


def _hubs(hub: Hub, known: Vitals) -> HealthPart:
    values = {"live": known.hubs_live, "dead": known.hubs_dead}
    if known.hubs_dead:
        words = f"{counted(known.hubs_dead, 'hub')} of this database went away without saying so."
        todo = "If they are not meant to be down, start them again; the others have taken over their work."
        return _part("hubs", "warn", words, todo=todo, values=values)
    return _part(
        "hubs",
        "ok",
        f"{counted(max(1, known.hubs_live), 'hub serves', 'hubs serve')} this pool.",
        values=values,
    )


def _webhooks(_hub: Hub, known: Vitals) -> HealthPart:
    values = {"disabled": known.webhooks_disabled, "failing": known.webhooks_failing}
    if known.webhooks_disabled or known.webhooks_failing:
        words = f"{known.webhooks_failing} webhooks fail, {known.webhooks_disabled} were disabled."
        todo = "Their owners see why with `pool webhooks`; check that this hub reaches the outside."
        return _part(
            "webhooks", "warn" if known.webhooks_failing else "note", words, todo=todo, values=values
        )
    return _part("webhooks", "ok", "All deliveries have arrived.", values=values)


def _payouts(hub: Hub, known: Vitals) -> HealthPart:
    values = {"waiting": known.payouts_waiting, "unknown": known.payouts_unknown}
    if known.payouts_unknown:
        words = f"The bank's answer to {counted(known.payouts_unknown, 'payout')} was lost."
        todo = (
            "The hub goes on asking; if it stays so, look at the bank's own list (`pool payouts list --all`)."
        )
        return _part("payouts", "warn", words, todo=todo, values=values)
    if known.payouts_waiting:
        words = f"{counted(known.payouts_waiting, 'payout waits', 'payouts wait')} for an administrator."
        late = hub.now_ms() - (known.oldest_payout_ms or 0) > _DAY_MS
        todo = "Approve or reject: `pool payouts list --all`."
        return _part("payouts", "warn" if late else "note", words, todo=todo, values=values)
    return _part("payouts", "ok", "No payout waits for anybody.", values=values)


def _approvals(hub: Hub, known: Vitals) -> HealthPart:
    """The same requests that `pool approvals list` shows: payouts are among them."""
    waiting = known.approvals + known.payouts_waiting
    values = {"waiting": waiting}
    if not waiting:
        return _part("approvals", "ok", "No request waits for an administrator.", values=values)
    words = f"{counted(waiting, 'request waits', 'requests wait')} for an administrator."
    oldest = filter(None, (known.oldest_approval_ms, known.oldest_payout_ms))
    late = hub.now_ms() - min(oldest, default=hub.now_ms()) > _DAY_MS
    todo = "Agree or refuse: `pool approvals list`."
    return _part("approvals", "warn" if late else "note", words, todo=todo, values=values)


def _backup(hub: Hub, _known: Vitals) -> HealthPart:
    sqlite = dialect.sqlite_file(hub.settings.url)
    how = "pg_dump the database" if sqlite is None else f"sqlite3 {sqlite} '.backup /elsewhere/hub.sqlite'"
    todo = f"Make backups from outside, also while the hub serves: {how}; and keep the folder of artifacts."
    stamp = hub.settings.backup_stamp
    if stamp is None:
        advice = "Let each backup touch a file, and name it in COMPUTEPOOL_BACKUP_STAMP: then its age is shown here."
        return _part("backup", "note", "The hub makes no backups and knows of none.", todo=f"{todo} {advice}")
    try:
        age_ms = max(0, hub.now_ms() - round(stamp.stat().st_mtime * 1000))
    except OSError as error:
        words = f"No backup has succeeded yet: {stamp}: {error.strerror}."
        return _part("backup", "warn", words, todo=todo)
    words, values = f"The last backup is {_ago(age_ms)} old.", {"age_ms": age_ms}
    if age_ms > hub.settings.backup_age_s * 1000:
        return _part("backup", "warn", words, todo=todo, values=values)
    return _part("backup", "ok", words, values=values)


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
        return _part("disk", "fail", f"{folder}: {error.strerror}.", todo="See that the folder is there.")
    percent = usage.free * 100 // max(1, usage.total)
    words = f"{byte_size(usage.free)} of {byte_size(usage.total)} are free where the hub keeps its data."
    values = {"free_bytes": usage.free, "total_bytes": usage.total}
    if usage.free < _GB // 2 or percent < 2:
        todo = "Make room now: without it nothing more is taken. Old artifacts go with `pool artifacts rm`."
        return _part("disk", "fail", words, todo=todo, values=values)
    if usage.free < 5 * _GB or percent < 10:
        todo = "Make room, or keep artifacts for a shorter time (COMPUTEPOOL_ARTIFACT_KEEP_S)."
        return _part("disk", "warn", words, todo=todo, values=values)
    return _part("disk", "ok", words, values=values)


async def _artifacts(hub: Hub) -> HealthPart:
    """By a look at an object that is not there."""
    where = hub.settings.blobs or "the hub's own disk"
    try:
        await hub.process.in_thread(hub.artifacts.blobs.size, place_of("0" * 64, "0" * 16))
    except (ComputePoolError, OSError) as error:
        todo = "Check COMPUTEPOOL_BLOBS, its credentials, and that the hub reaches it."
        return _part("artifacts", "fail", f"The store at {where} does not answer: {error}", todo=todo)
    return _part("artifacts", "ok", f"Files are kept at {where}, which answers.")


def _loops(loops: list[LoopView]) -> HealthPart:
    bad = [loop for loop in loops if loop.state != "ok"]
    values = {"loops": len(loops), "failing": len(bad)}
    if not bad:
        return _part("loops", "ok", f"All {len(loops)} of the hub's duties are done on time.", values=values)
    state = max((loop.state for loop in bad), key=_WORST.index)
    words = ", ".join(loop.name for loop in bad)
    todo = "The hub's log says why; a restart loses nothing."
    return _part("loops", state, f"Not done on time: {words}.", todo=todo, values=values)


def _loop(beat: LoopState, now_ms: int) -> LoopView:
    late = beat.silent_ms(now_ms) > max(_MINUTE_MS, 5 * beat.interval_ms)
    state: Health = "fail" if late else "warn" if beat.failures else "ok"
    return LoopView.from_attributes(beat, state=state)


def _node_versions(known: Vitals | None) -> list[VersionCount]:
    if known is None:
        return []
    counts = sorted(known.versions.items(), key=lambda item: -item[1])
    return [VersionCount(version=name, nodes=count) for name, count in counts]
