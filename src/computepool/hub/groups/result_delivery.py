"""Result delivery: a group's home node fetches its results, and reports problems and the arrival.

Only the home node may do this, if it belongs to the group's account, and while the group waits for it.
"""

from __future__ import annotations

import json

from computepool.core.errors import Conflict, NotFound
from computepool.hub.context import Hub
from computepool.hub.db.session import Connection, Tx
from computepool.hub.groups import rows as group_rows, summaries
from computepool.hub.groups.rows import ARRIVED, WAITING, GroupRow
from computepool.hub.identity.access import NodePrincipal
from computepool.hub.nodes import group_homes
from computepool.protocol.jobs.groups import (
    DIGESTS_MAX,
    ArrivalReply,
    ArrivalRequest,
    DeliveryProblem,
    ItemPage,
    ResultDeliveryView,
)


def _check_home(node: NodePrincipal, row: GroupRow | None) -> GroupRow:
    if row is None or row.home != node.node_id or row.account_id != node.owner or not row.return_home:
        raise NotFound("There is no such group, or this node is not its home.")
    return row


def _check_waiting(node: NodePrincipal, row: GroupRow | None) -> GroupRow:
    row = _check_home(node, row)
    if row.home_state != WAITING:
        raise NotFound("The group is not waiting for delivery.")
    return row


async def get(hub: Hub, node: NodePrincipal, group_id: str) -> ResultDeliveryView:
    def load(connection: Connection) -> ResultDeliveryView:
        row = _check_waiting(node, group_rows.get_group(connection, group_id))
        files, size = group_rows.count_files(connection, group_id)
        return ResultDeliveryView(
            summary=summaries.summarise(hub, connection, row),
            round=row.rounds,
            items=group_rows.count_items(connection, group_id),
            files=files,
            bytes=size,
        )

    return await hub.store.read(load)


async def items(hub: Hub, node: NodePrincipal, group_id: str, *, after: str | None, limit: int) -> ItemPage:
    def load(connection: Connection) -> ItemPage:
        _check_waiting(node, group_rows.get_group(connection, group_id))
        return summaries.load(
            connection,
            group_id,
            summaries.Which.ALL,
            after=after,
            limit=limit,
            bytes_max=hub.settings.result_page_bytes,
        )

    return await hub.store.read(load)


async def report_problem(hub: Hub, node: NodePrincipal, group_id: str, *, request: DeliveryProblem) -> None:
    """Show people why delivery has not succeeded yet. The node keeps trying."""

    def unit(tx: Tx) -> None:
        row = _check_home(node, group_rows.lock_group(tx, group_id))
        if row.home_state != WAITING or row.rounds != request.round:
            return
        group_rows.set_group(tx, group_id, home_reason=request.reason, home_at_ms=tx.now_ms)
        if row.home_reason != request.reason:
            _emit(tx, row, node, action="group.delivery_problem", data={"reason": request.reason})

    await hub.store.write(unit)


async def record_arrival(hub: Hub, node: NodePrincipal, group_id: str, *, request: ArrivalRequest) -> ArrivalReply:
    """Record the arrival, once, if nothing is missing: a node that missed a page has to start again. It may have more than the
    hub, which may have deleted files since."""
    expected = await hub.store.read(_expect, node, group_id)
    if expected is not None:
        _compare(expected, request)

    def unit(tx: Tx) -> ArrivalReply:
        row = _check_home(node, group_rows.lock_group(tx, group_id))
        if row.home_state != WAITING or row.rounds != request.round:
            return ArrivalReply(recorded=False)
        fields = request.model_dump(include={"items", "files", "bytes", "folder"})
        # The path is private to the owner: it is shown with the group, but not in events.
        kept = fields if request.path is None else {**fields, "path": request.path}
        group_rows.set_group(
            tx, group_id, home_state=ARRIVED, home_at_ms=tx.now_ms, home_reason=None, home_arrival=json.dumps(kept)
        )
        _emit(tx, row, node, action="group.home", data={**fields, "manifest": request.manifest})
        tx.touch(f"group:{group_id}")
        group_homes.touch(tx, node.node_id)
        return ArrivalReply(recorded=True)

    return await hub.store.write(unit)


def _expect(
    connection: Connection, node: NodePrincipal, group_id: str
) -> tuple[int, tuple[int, int], list[str]] | None:
    """The numbers of items, files and bytes, and the digests that have to arrive; None if the group no longer waits. Read
    outside the transaction that records the arrival, because that takes long for a large group, and it does not change."""
    row = _check_home(node, group_rows.get_group(connection, group_id))
    if row.home_state != WAITING:
        return None
    return (
        group_rows.count_items(connection, group_id),
        group_rows.count_files(connection, group_id),
        group_rows.digests_of(connection, group_id, limit=DIGESTS_MAX),
    )


def _compare(expected: tuple[int, tuple[int, int], list[str]], request: ArrivalRequest) -> None:
    items, (files, size), digests = expected
    if request.items != items:
        raise Conflict(f"The group has {items} items, and {request.items} arrived.", field="items")
    if request.files < files or request.bytes < size:
        raise Conflict(
            f"The group has {files} files of {size} bytes, and {request.files} of {request.bytes} arrived.",
            field="files",
        )
    delivered = set(request.digests)
    # If there are very many files, both name only the first.
    last = max(delivered) if len(request.digests) == DIGESTS_MAX else None
    if not all(digest in delivered or (last is not None and digest > last) for digest in digests):
        raise Conflict("The delivered files are not those of the group.", field="digests")


def _emit(tx: Tx, row: GroupRow, node: NodePrincipal, *, action: str, data: dict[str, object]) -> None:
    tx.emit(
        actor=node.node_id, action=action, account_id=row.account_id, group_id=row.id, node_id=node.node_id, data=data
    )
