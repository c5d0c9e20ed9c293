"""Summaries of groups with the start of each list, and the lists themselves, page by page.

A list contains the group's jobs in the order of their ids, then the keys without a job in the order of their names. Its cursor
says which of the two the last item was.
"""

from __future__ import annotations

import json
from enum import StrEnum

from computepool.core.jobs.lifecycle import TERMINAL, JobState
from computepool.hub.artifacts import rows as artifact_rows
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection
from computepool.hub.groups import groups, messages, rows as group_rows
from computepool.hub.groups.rows import FAILED, PENDING, SUCCEEDED, ExpectedKeyRow, GroupJobRow, GroupRow
from computepool.hub.identity import cursors
from computepool.hub.identity.access import Principal
from computepool.hub.jobs import views
from computepool.hub.nodes import rows as node_rows
from computepool.hub.scheduling import explanations
from computepool.protocol.jobs.groups import GroupItem, GroupSummary, ItemPage, ItemState, LocationView, StatePage
from computepool.protocol.tokens import b64

FIRST = 20  #: items of each list that a summary contains
_FIRST_BYTES = 256 * 1024
_JOB, _KEY = "j", "k"


class Which(StrEnum):
    """Which of a group's items to list."""

    ALL = "all"
    RESULTS = "results"
    FAILURES = "failures"
    WAITING = "waiting"


_NOT_SUCCEEDED = sorted(state.value for state in TERMINAL if state is not JobState.SUCCEEDED)
_OPEN = sorted(state.value for state in JobState if state not in TERMINAL)
#: The states of jobs, and of keys without a job, in each list; empty: all.
_STATES: dict[Which, tuple[list[str], list[str]]] = {
    Which.ALL: ([], []),
    Which.RESULTS: ([JobState.SUCCEEDED.value], [SUCCEEDED]),
    Which.FAILURES: (_NOT_SUCCEEDED, [FAILED]),
    Which.WAITING: (_OPEN, [PENDING]),
}


async def summary(hub: Hub, principal: Principal, group_id: str) -> GroupSummary:
    found = await hub.store.read(
        lambda connection: summarise(hub, connection, groups.get_owned(connection, principal, group_id))
    )
    queued = [item.job_id for item in found.waiting.items if item.job_id and item.sentence == views.FOR_A_NODE]
    why = explanations.of_queued(hub, queued)
    items = [
        item.model_copy(update={"sentence": why.get(item.job_id or "", item.sentence)}) for item in found.waiting.items
    ]
    return found.model_copy(update={"waiting": found.waiting.model_copy(update={"items": items})})


def summarise(hub: Hub, connection: Connection, row: GroupRow) -> GroupSummary:
    view = groups.view(connection, row, hub=hub)

    def start(which: Which, count: int) -> ItemPage:
        if not count:  # do not search a large group for nothing: no index has the list
            return ItemPage(items=[])
        return load(connection, row.id, which, after=None, limit=FIRST, bytes_max=_FIRST_BYTES)

    message_count, newest = messages.newest(connection, row.id)
    return GroupSummary(
        **view,
        results=start(Which.RESULTS, view["succeeded"]),
        failures=start(Which.FAILURES, view["failed"]),
        waiting=start(Which.WAITING, view["pending"]),
        location=LocationView(hub_id=hub.process.hub_id, address=hub.settings.address),
        message_count=message_count,
        messages=newest,
    )


async def items(
    hub: Hub, principal: Principal, group_id: str, *, which: Which, after: str | None, limit: int
) -> ItemPage:
    await groups.check_owner(hub, principal, group_id)
    bytes_max = hub.settings.result_page_bytes
    return await hub.store.read(load, group_id, which, after=after, limit=limit, bytes_max=bytes_max)


async def states(hub: Hub, principal: Principal, group_id: str, *, after: str | None, limit: int) -> StatePage:
    await groups.check_owner(hub, principal, group_id)
    return await hub.store.read(_load_states, group_id, after=after, limit=limit)


def _load_states(connection: Connection, group_id: str, *, after: str | None, limit: int) -> StatePage:
    kind, last = (_JOB, "") if after is None else _read_cursor(after)
    found: list[ItemState] = []
    if kind == _JOB:
        for row in group_rows.page_job_states(connection, group_id, after=last, limit=limit):
            counted = {"bundled": row.bundled, "items_failed": row.items_failed}
            found.append(ItemState(key=row.key, job_id=row.id, state=row.state, **counted))
        if len(found) == limit:
            return StatePage(items=found, next=_cursor(_JOB, found[-1].job_id or ""))
        last = ""
    left = limit - len(found)
    rows = group_rows.page_keys(connection, group_id, states=[], after=last, limit=left)
    words = {PENDING: groups.EXPECTED}
    found += [ItemState(key=row.key, state=words.get(row.state, row.state)) for row in rows]
    return StatePage(items=found, next=_cursor(_KEY, rows[-1].key) if len(rows) == left else None)


def load(
    connection: Connection, group_id: str, which: Which, *, after: str | None, limit: int, bytes_max: int
) -> ItemPage:
    kind, last = (_JOB, "") if after is None else _read_cursor(after)
    job_states, key_states = _STATES[which]
    found: list[GroupItem] = []
    if kind == _JOB:
        rows = group_rows.page_jobs(connection, group_id, states=job_states, after=last, limit=limit)
        kept = groups.within(rows, bytes_max)
        found = _job_items(connection, kept)
        if len(kept) == limit or len(kept) < len(rows):
            return ItemPage(items=found, next=_cursor(_JOB, kept[-1].id))
        bytes_max -= sum(len(row.result or "") + len(row.error or "") for row in kept)
        last = ""
    left = limit - len(found)
    keys = group_rows.page_keys(connection, group_id, states=key_states, after=last, limit=left)
    shown = groups.within(keys, bytes_max)
    found += [_key_item(row) for row in shown]
    more = len(shown) == left or len(shown) < len(keys)
    return ItemPage(items=found, next=_cursor(_KEY, shown[-1].key) if more else None)


def _job_items(connection: Connection, rows: list[GroupJobRow]) -> list[GroupItem]:
    if not rows:
        return []
    outputs = artifact_rows.outputs_of(connection, [row.id for row in rows])
    names = node_rows.get_names(connection, sorted({row.node_id for row in rows if row.node_id}))
    return [
        GroupItem.from_attributes(
            row,
            job_id=row.id,
            sentence=views.status(row, node=names.get(row.node_id or "")),
            meta=_meta(row),
            duplicates=row.duplicates or 0,
            dropped=views.is_dropped(row),
            outputs=views.output_files(outputs.get(row.id, ())),
        )
        for row in rows
    ]


def _key_item(row: ExpectedKeyRow) -> GroupItem:
    pending = row.state == PENDING
    return GroupItem.from_attributes(
        row,
        state=groups.EXPECTED if pending else row.state,
        sentence="no job has this key, and nobody has reported it" if pending else "reported from outside",
        meta=_meta(row),
        finished_at_ms=row.reported_at_ms,
    )


def _meta(row: GroupJobRow | ExpectedKeyRow) -> dict[str, str | bool | int | float | None] | None:
    return None if row.meta is None else json.loads(row.meta)


def _cursor(kind: str, last: str) -> str:
    return b64(f"{kind}{last}".encode())


def _read_cursor(text: str) -> tuple[str, str]:
    words = cursors.read_plain(text)
    if words[:1] not in (_JOB, _KEY) or "\x00" in words:
        raise cursors.wrong()
    return words[0], words[1:]
