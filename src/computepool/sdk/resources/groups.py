"""`pool.groups`: groups of jobs, their results in order of arrival, and their collectors."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any, TypeAlias

from computepool.core.errors import NotFound
from computepool.protocol.jobs import bundles, groups as wire
from computepool.protocol.jobs.children import MessagePage, MessageView
from computepool.protocol.jobs.unbundling import answers
from computepool.protocol.jobs.views import GraphView, JobResult
from computepool.protocol.references import ReferenceKind
from computepool.protocol.values import values
from computepool.sdk.classes.collector import Collector
from computepool.sdk.client.resource import Resource, find_id, milliseconds, validate
from computepool.sdk.client.transport import PAGE_MAX, WAIT_MS, Params, Transport
from computepool.sdk.client.waiting import WaitNotice, group_reason
from computepool.sdk.errors import ChecksumMismatch, ResultUnreadable, dropped_result_error
from computepool.sdk.files.artifacts import ArtifactApi
from computepool.sdk.files.sealing import CannotOpen, with_error

Groups: TypeAlias = list[wire.GroupView]
Items: TypeAlias = list[wire.GroupItem]
_ID_PREFIX = "grp_"


class GroupApi(Resource):
    def __init__(self, transport: Transport, artifacts: ArtifactApi) -> None:
        super().__init__(transport)
        self._artifacts = artifacts

    @property
    def groups(self) -> GroupApi:
        """Lets a Collector be created from this API instead of a Pool."""
        return self

    def create(
        self, name: str, *, kind: str = "group", home: str | None = None, return_home: bool = False
    ) -> wire.GroupView:
        """Create a group. `home`: one of your nodes, by ID or name; with `return_home`, it gets the complete results."""
        fields = {"name": name, "kind": kind, "home": home, "return_home": return_home or None}
        return self._post("/groups", wire.GroupView, wire.GroupRequest, **fields)

    def collector(self, group: str | wire.GroupView) -> Collector:
        """The collector of a group, by ID or name. An ID is not checked until the first call."""
        if isinstance(group, wire.GroupView):
            return Collector(self, group.id)
        return Collector(self, find_id(self._transport, ReferenceKind.GROUP, group))

    def graph(self, group_id: str) -> GraphView:
        """The jobs of a group that come before or after others."""
        return self._transport.get(f"/groups/{group_id}/graph", GraphView)

    def find(self, word: str) -> wire.GroupView:
        """By ID, ID prefix, or name (the newest group with that name); `last` is the newest group of all."""
        return self.get(find_id(self._transport, ReferenceKind.GROUP, word))

    def find_or_create(self, name: str) -> wire.GroupView:
        """The newest group with this name, or a new one. Concurrent calls create only one group."""
        if name.startswith(_ID_PREFIX):
            return self.find(name)
        named = self.list(name=name, kind="group", limit=1)
        if named:
            return named[0]
        request = validate(wire.GroupRequest, name=name, kind="group")
        key = f"ad-hoc {hashlib.sha256(name.encode()).hexdigest()}"
        return self._transport.post("/groups", wire.GroupView, body=request, key=key)

    def list(self, *, kind: str | None = None, name: str | None = None, limit: int = 100) -> Groups:
        params = {"kind": kind, "name": name}
        return list(self._each("/groups", wire.GroupPage, lambda page: page.groups, limit=limit, params=params))

    def get(self, group_id: str) -> wire.GroupView:
        return self._transport.get(f"/groups/{group_id}", wire.GroupView)

    def results(self, group_id: str, *, follow: bool = False, after: int = 0) -> Iterator[JobResult]:
        """Iterate over finished jobs; with `follow`, until none is open."""
        wait_ms = 0
        notice = WaitNotice(partial(group_reason, self._transport, group_id))
        while True:
            params: Params = {"after": after, "limit": PAGE_MAX}
            page = self._transport.get(f"/groups/{group_id}/results", wire.ResultPage, params=params, wait_ms=wait_ms)
            yield from (with_error(result, result.job_id) for result in page.results)
            after = page.cursor
            if not page.results and not (follow and page.open):
                return
            if page.results:
                notice.restart()
            notice.check()
            # Only an empty page has the number of open jobs, so the request after a page with results must not wait.
            wait_ms = 0 if page.results else notice.cap_ms(WAIT_MS)

    def messages(self, group_id: str, *, follow: bool = False, after: int = 0) -> Iterator[MessageView]:
        """Iterate over messages of running jobs; with `follow`, until no job is open."""
        wait_ms = 0
        while True:
            params: Params = {"after": after, "limit": PAGE_MAX}
            page = self._transport.get(f"/groups/{group_id}/messages", MessagePage, params=params, wait_ms=wait_ms)
            yield from page.messages
            after = page.cursor
            if not page.messages and not (follow and page.open):
                return
            wait_ms = 0 if page.messages else WAIT_MS

    def read(self, result: JobResult | wire.GroupItem) -> Any:
        """The value of a result, inline or from an artifact. Never unpickles."""
        return self._decode(self._text(result), result)

    def read_each(self, result: JobResult | wire.GroupItem) -> Iterator[tuple[int | None, Any]]:
        """The values of a job: for a bundle, each successful item with its number in the job.

        An unreadable value is replaced by a ResultUnreadable, so that a bad result does not hide the others.
        """
        if result.bundled == 0:
            return  # all its items were resent in other jobs
        try:
            text = self._text(result)
        except (CannotOpen, ChecksumMismatch, NotFound, ResultUnreadable) as error:
            yield None, error if isinstance(error, ResultUnreadable) else _unreadable(result, error)
            return
        parts = None if text is None else answers(text, result)
        if parts is None:
            yield None, self._decode_or_error(text, result)
            return
        for index, kind, part in parts:
            if kind == bundles.VALUE:
                yield index, self._decode_or_error(part, result)

    def _text(self, result: JobResult | wire.GroupItem) -> str | None:
        if result.dropped:
            raise dropped_result_error(result.job_id or "")
        if result.result_artifact is None:
            return result.result
        try:
            return self._artifacts.get_result(result.result_artifact, job_id=result.job_id or "")
        except ValueError as error:
            raise _unreadable(result, error) from error

    def _decode(self, text: str | None, result: JobResult | wire.GroupItem) -> Any:
        try:
            return None if text is None else values.decode(text)
        except ValueError as error:
            raise _unreadable(result, error) from error

    def _decode_or_error(self, text: str | None, result: JobResult | wire.GroupItem) -> Any:
        try:
            return self._decode(text, result)
        except ResultUnreadable as error:
            return error

    def cancel(self, group_id: str) -> wire.GroupView:
        return self._transport.post(f"/groups/{group_id}/cancel", wire.GroupView)

    # collector requests; see sdk/classes/collector.py

    def summary(self, group_id: str) -> wire.GroupSummary:
        found = self._transport.get(f"/groups/{group_id}/summary", wire.GroupSummary)
        failures = found.failures.model_copy(update={"items": _open_items(found.failures)})
        return found.model_copy(update={"failures": failures})

    def items(self, group_id: str, *, which: str = "all", after: str | None = None) -> Iterator[wire.GroupItem]:
        """Iterate over the items of a group: all, results, failures or waiting."""
        path, params = f"/groups/{group_id}/items", {"which": which}
        return self._each(path, wire.ItemPage, _open_items, limit=sys.maxsize, params=params, after=after)

    def reason(self, group_id: str) -> str:
        """Why the newest queued job waits; empty if none does."""
        return group_reason(self._transport, group_id)

    def drain(self, group_id: str, *, timeout: float) -> wire.GroupView:
        """Wait once: returns when the group is complete, or after `timeout` seconds (at most 60)."""
        return self._transport.get(f"/groups/{group_id}/drain", wire.GroupView, wait_ms=milliseconds(timeout))

    def register(self, group_id: str, request: wire.RegisterKeysRequest) -> wire.RegisterKeysReply:
        return self._transport.post(f"/groups/{group_id}/keys", wire.RegisterKeysReply, body=request)

    def report(self, group_id: str, request: wire.KeyReportsRequest) -> wire.KeyReportsReply:
        return self._transport.post(f"/groups/{group_id}/reports", wire.KeyReportsReply, body=request)

    def return_home(self, group_id: str, *, home: str | None = None, enabled: bool = True) -> wire.GroupView:
        """Request, repeat, redirect or cancel the delivery."""
        return self._post(
            f"/groups/{group_id}/return-home", wire.GroupView, wire.ReturnHomeRequest, home=home, enabled=enabled
        )


def _unreadable(result: JobResult | wire.GroupItem, error: Exception) -> ResultUnreadable:
    name = result.key or result.job_id or ""
    return ResultUnreadable(f"The result {name!r} cannot be read: {error}", job_id=result.job_id or name)


def _open_items(page: wire.ItemPage) -> Items:
    return [with_error(item, item.job_id) for item in page.items]
