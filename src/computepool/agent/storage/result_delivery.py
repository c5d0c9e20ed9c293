"""Delivery of results: this node fetches the groups of its owner that wait for it at the hub.

Each group goes into a folder below `home/`, which gets its final name only when every file's SHA-256 was verified; then
the hub is notified. An interrupted fetch is resumed, and retried until it succeeds or the group no longer waits. The hub
shows people why it fails.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from operator import itemgetter
from pathlib import Path
from typing import IO

from computepool.agent.context import Node
from computepool.agent.hub_link.hub_client import TRANSIENT
from computepool.agent.sandbox.scratch import open_descriptor, remove_tree
from computepool.agent.storage.artifacts import download, size_of
from computepool.core.errors import ComputePoolError, Conflict, NotFound, Unavailable
from computepool.core.words import byte_size
from computepool.protocol.base import TEXT_MAX
from computepool.protocol.files import file_digest
from computepool.protocol.jobs import home_folder
from computepool.protocol.jobs.groups import (
    DIGESTS_MAX,
    PATH_MAX,
    ArrivalReply,
    ArrivalRequest,
    DeliveryProblem,
    GroupItem,
    ResultDeliveryView,
)
from computepool.protocol.jobs.home_folder import ARRIVAL, MANIFEST, RESULTS, SUMMARY, Placed

_log = logging.getLogger(__name__)

HOME = "home"
_COMING = ".coming"
_PARTS = ".parts"
#: A group's id becomes part of paths and glob patterns.
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
#: Tasks to start together; the number of concurrent transfers has a limit of its own.
_TOGETHER = 256


class NoRoom(Exception):
    """The disk is too full; the message says how much space is missing."""


@dataclass(eq=False)
class ResultDelivery:
    """Runs one task per group; concurrent transfers are limited across all groups."""

    node: Node
    data_dir: Path

    def __post_init__(self) -> None:
        self._home = self.data_dir / HOME
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._turn = asyncio.Semaphore(self.node.limits.result_deliveries_max)
        self._slots = asyncio.Semaphore(self.node.limits.transfers_max)
        self._swept = False

    def request(self, group_ids: Iterable[str]) -> None:
        """Fetch exactly these groups."""
        requested = {group_id for group_id in group_ids if _ID.fullmatch(group_id)}
        for group_id, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[group_id]
                if not task.cancelled() and (bug := task.exception()) is not None:
                    _log.error("fetching group %s failed; starting again", group_id, exc_info=bug)
            elif group_id not in requested:
                task.cancel()
        if not self._swept:
            self._swept = True
            for leftover in (self._home / _COMING).glob("*"):  # partial downloads of groups that no longer wait
                if leftover.name.rpartition("+")[0] not in requested:
                    remove_tree(leftover)
        for group_id in sorted(requested - self._tasks.keys()):
            self._tasks[group_id] = asyncio.create_task(self._fetch_until_done(group_id))

    @property
    def under_way(self) -> list[str]:
        return sorted(group_id for group_id, task in self._tasks.items() if not task.done())

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _fetch_until_done(self, group_id: str) -> None:
        backoff = self.node.client.backoff()
        while True:
            try:
                async with self._turn:
                    await self._fetch(group_id)
                return
            except NotFound:
                _log.info("group %s is no longer waiting for this node", group_id)
                for leftover in (self._home / _COMING).glob(f"{group_id}+*"):
                    await asyncio.to_thread(remove_tree, leftover)
                return
            except ComputePoolError as error:
                delay_s = backoff.delay_s(error)
                _log.warning("retrying group %s in %.1f s: %s", group_id, delay_s, error.detail)
            await asyncio.sleep(delay_s)

    async def _fetch(self, group_id: str) -> None:
        view = await self.node.client.result_delivery(group_id)
        if view.summary.id != group_id or view.summary.account_id != self.node.identity.owner:
            raise NotFound("The group does not belong to this node's owner.")
        try:
            folder = home_folder.group_folder(view.summary.name, group_id, view.round)
            arrival, reply = await self._deliver(view, folder)
        except (*TRANSIENT, NotFound):
            raise  # The hub is away or the group no longer waits: there is nothing to report.
        except (ComputePoolError, OSError, ValueError, NoRoom) as error:
            raise await self._report_problem(view, error) from error
        if reply.recorded:
            name, place = view.summary.name, self._home / folder
            _log.info("group %s is home: %d results and %d files in %s", name, arrival.items, arrival.files, place)

    async def _deliver(self, view: ResultDeliveryView, folder: str) -> tuple[ArrivalRequest, ArrivalReply]:
        """Confirm a complete copy or fetch it. A copy that the hub rejects as incomplete is renamed first."""
        known = await asyncio.to_thread(self._find_complete, folder, view.round)
        if known is not None:
            try:
                return known, await self._report_arrival(view.summary.id, known, folder)
            except Conflict as refused:
                await asyncio.to_thread(self._put_aside, folder, refused.detail)
        arrival = await self._pull(view, folder)
        return arrival, await self._report_arrival(view.summary.id, arrival, folder)

    async def _report_arrival(self, group_id: str, arrival: ArrivalRequest, folder: str) -> ArrivalReply:
        # Resolved now: the folder may have been moved since.
        place = str((self._home / folder).resolve()).encode(errors="replace").decode()
        path = place if len(place) <= PATH_MAX else None
        return await self.node.client.report_arrival(group_id, arrival.model_copy(update={"path": path}))

    async def _report_problem(self, view: ResultDeliveryView, error: Exception) -> Unavailable:
        """Report the reason to the hub, where people see it. Returns an error that leads to a retry."""
        reason = error.detail if isinstance(error, ComputePoolError) else str(error) or type(error).__name__
        if isinstance(error, OSError) and error.strerror:
            reason = f"{error.strerror}: {error.filename or self._home}"
        problem = DeliveryProblem(round=view.round, reason=reason[:TEXT_MAX])
        await self.node.client.delivery_problem(view.summary.id, problem)
        return Unavailable(reason)

    def _find_complete(self, folder: str, round_: int) -> ArrivalRequest | None:
        """A complete copy from an earlier fetch, if there is one. A damaged copy is renamed."""
        place = self._home / folder
        if not os.path.lexists(place):
            return None
        try:
            arrival = ArrivalRequest.model_validate_json((place / ARRIVAL).read_bytes())
            if arrival.round == round_ and _is_whole(place, arrival.manifest):
                return arrival
        except (OSError, ValueError):
            pass
        self._put_aside(folder, "it was changed")
        return None

    def _put_aside(self, folder: str, why: str) -> None:
        place = self._home / folder
        number = 1
        while os.path.lexists(aside := place.with_name(f"{place.name}.before-{number}")):
            number += 1
        place.rename(aside)
        _log.warning("renamed %s to %s: %s", place, aside.name, why)

    async def _pull(self, view: ResultDeliveryView, folder: str) -> ArrivalRequest:
        coming = self._home / _COMING / f"{view.summary.id}+{view.round}"
        pull = _Pull(self.node, coming, view=view, slots=self._slots)
        arrival = await pull.run(folder=f"{HOME}/{folder}")
        await asyncio.to_thread(_publish, pull.folder, self._home / folder)
        return arrival


@dataclass(eq=False)
class _Pull:
    """One attempt to fetch a group into a folder that may already hold part of it."""

    node: Node
    folder: Path
    _: KW_ONLY
    view: ResultDeliveryView
    slots: asyncio.Semaphore
    items: int = 0

    def __post_init__(self) -> None:
        self._manifest: list[tuple[str, str]] = []
        self._sizes: dict[str, int] = {}
        self._locks: dict[str, asyncio.Lock] = {}
        self._at: dict[str, Path] = {}  #: the first place of each file that was fetched
        self._missing: set[str] = set()  #: files that the hub no longer has

    async def run(self, *, folder: str) -> ArrivalRequest:
        await asyncio.to_thread(self._prepare)
        have = await asyncio.to_thread(_bytes_in, self.folder)
        self._check_free_bytes(self.view.bytes - have)
        (self.folder / SUMMARY).write_text(self.view.summary.model_dump_json(indent=2) + "\n")
        await self._pages()
        requested, here = (await self._check_pending()).files, len(self._at.keys() - self._missing)
        if here < requested:
            raise Conflict(f"{requested - here} of {requested} files are not available at the hub now.")
        return await asyncio.to_thread(self._conclude, folder)

    async def _check_pending(self) -> ResultDeliveryView:
        """Raises NotFound if the group no longer waits for this node, which would make every file seem to be missing."""
        now = await self.node.client.result_delivery(self.view.summary.id)
        if now.round != self.view.round:
            raise Unavailable("the group was completed again meanwhile")
        return now

    def _prepare(self) -> None:
        """Create private folders: other users, including jobs, must not read them."""
        for folder in (self.folder.parent.parent, self.folder.parent, self.folder, self.folder / _PARTS):
            folder.mkdir(mode=0o700, exist_ok=True)

    def _check_free_bytes(self, size: int) -> None:
        free = shutil.disk_usage(self.folder).free - self.node.limits.home_spare_bytes
        if size > free:
            raise NoRoom(
                f"it needs {byte_size(size)} more, and {byte_size(max(0, free))} are free in {self.folder.parent.parent} "
                f"({byte_size(self.node.limits.home_spare_bytes)} are kept free for the node's jobs)"
            )

    async def _pages(self) -> None:
        after: str | None = None
        with (self.folder / RESULTS).open("w", encoding="utf-8") as lines:
            while True:
                page = await self.node.client.result_delivery_items(self.view.summary.id, after=after)
                self._check_free_bytes(sum(len(item.result or "") for item in page.items))
                await self._take(page.items, lines)
                after = page.next
                if after is None:
                    break
            lines.flush()
            await asyncio.to_thread(os.fsync, lines.fileno())

    async def _take(self, items: list[GroupItem], lines: IO[str]) -> None:
        plans = [(item, home_folder.plan(item)) for item in items]
        files_of_all = [file for _, files in plans for file in files]
        missing = len(self._missing)
        for start in range(0, len(files_of_all), _TOGETHER):
            try:
                async with asyncio.TaskGroup() as tasks:
                    for file in files_of_all[start : start + _TOGETHER]:
                        tasks.create_task(self._place(file))
            except ExceptionGroup as group:
                raise group.exceptions[0] from None  # the others failed likewise, or were cancelled
        if len(self._missing) > missing:
            await self._check_pending()
        for item, files in plans:
            places = [
                {"name": file.name, "path": file.path, "sha256": file.digest}
                | ({"missing": True} if file.digest in self._missing else {})
                for file in files
            ]
            lines.writelines(json.dumps(line) + "\n" for line in home_folder.lines(item, places))
            self.items += 1
        self._manifest += [
            (file.digest, file.path) for _, files in plans for file in files if file.digest not in self._missing
        ]

    async def _place(self, file: Placed) -> None:
        """Fetch each file once; copy further occurrences locally."""
        target = self.folder.joinpath(*file.path.split("/"))
        async with self._locks.setdefault(file.digest, asyncio.Lock()), self.slots:
            if await asyncio.to_thread(_is_here, target, file.digest):
                self._note_file(file, target)
                return
            if (known := self._at.get(file.digest)) is not None:
                self._check_free_bytes(self._sizes[file.digest])
                await asyncio.to_thread(_copy, known, self.folder / _PARTS / f"{file.digest}.copy", target)
                return
            part = self.folder / _PARTS / f"{file.digest}.part"
            if file.size is not None:
                self._check_free_bytes(file.size - size_of(part))
            try:
                await download(self.node.client, file.digest, part, sync=True)
            except NotFound:
                self._missing.add(file.digest)
                return
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.rename(target)
            self._note_file(file, target)

    def _note_file(self, file: Placed, target: Path) -> None:
        self._at.setdefault(file.digest, target)
        self._sizes[file.digest] = target.stat().st_size

    def _conclude(self, folder: str) -> ArrivalRequest:
        """Write the manifest and the arrival request for the hub."""
        remove_tree(self.folder / _PARTS)
        own = [(file_digest(self.folder / name), name) for name in (SUMMARY, RESULTS)]
        text = "".join(f"{digest}  {path}\n" for digest, path in [*own, *sorted(self._manifest, key=itemgetter(1))])
        (self.folder / MANIFEST).write_text(text, encoding="utf-8")
        digests = sorted({digest for digest, _ in self._manifest})
        arrival = ArrivalRequest(
            round=self.view.round,
            items=self.items,
            files=len(digests),
            bytes=sum(self._sizes[digest] for digest in digests),
            folder=folder,
            manifest=hashlib.sha256(text.encode()).hexdigest(),
            digests=digests[:DIGESTS_MAX],
        )
        (self.folder / ARRIVAL).write_text(arrival.model_dump_json(indent=2) + "\n")
        return arrival


def _copy(source: Path, part: Path, target: Path) -> None:
    """Copy through a temporary file, so that the target is always complete."""
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.copyfile(source, part)
    with part.open("rb") as file:
        os.fsync(file.fileno())
    part.rename(target)


def _publish(folder: Path, final: Path) -> None:
    """Sync everything, then rename the folder to its final name."""
    for parent, _, names in os.walk(folder):
        for name in (".", *(names if parent == str(folder) else ())):
            _sync(os.path.join(parent, name))
    folder.rename(final)
    _sync(final.parent)


def _sync(path: str | Path) -> None:
    with open_descriptor(path, os.O_RDONLY) as descriptor:
        os.fsync(descriptor)


def _is_whole(folder: Path, manifest: str) -> bool:
    text = (folder / MANIFEST).read_bytes()
    if hashlib.sha256(text).hexdigest() != manifest:
        return False
    # Not splitlines(): a name may contain other characters that end lines.
    for line in text.decode().removesuffix("\n").split("\n"):
        digest, _, path = line.partition("  ")
        file = folder.joinpath(*path.split("/"))
        if not _is_here(file, digest):
            return False
    return True


def _is_here(path: Path, digest: str) -> bool:
    """True if the file has this digest: an earlier fetch may have left other content there."""
    return path.is_file() and not path.is_symlink() and file_digest(path) == digest


def _bytes_in(folder: Path) -> int:
    return sum(size_of(Path(parent, name)) for parent, _, names in os.walk(folder) for name in names)
