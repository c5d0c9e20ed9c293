"""Delivers reports: each is on disk before it is sent, and stays there until the hub has answered it.

Reports that are added while a request is under way share the next one, so a single report leaves at once, and a thousand
a second need few requests. While attempts wait for others to end, requests are spaced a little, because each one takes
time from the jobs.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace

from computepool.agent.context import Node
from computepool.agent.execution.attempt_result import AttemptResult, failed_result
from computepool.agent.hub_link.hub_client import TRANSIENT_OR_FULL, Backoff
from computepool.agent.hub_link.identity import UNSIGNED
from computepool.agent.hub_link.outbox import Batch, Outbox
from computepool.core.errors import ComputePoolError
from computepool.core.jobs.lifecycle import Reason, Verdict
from computepool.protocol.nodes.nodes import REPORTS_MAX, CompleteRequest, LogsRequest, LogText, Report, ReportAnswer

_log = logging.getLogger(__name__)

#: While a request hangs, new reports are saved to disk at least this often.
SPILL_S = 0.5
#: Per CompleteRequest.
LOGS_MAX = REPORTS_MAX * 4


@dataclass(eq=False)
class Reporter:
    node: Node
    outbox: Outbox
    _: KW_ONLY
    on_settled: Callable[[str], None]  #: called once per attempt, when its report was answered or given up
    is_busy: Callable[[], bool]

    def __post_init__(self) -> None:
        self._sent_at = self.node.clock.steady()
        self._backoff = Backoff(self.node.clock, self.node.limits)
        self._queue: deque[tuple[Report, Sequence[LogText]]] = deque()
        self._ready: deque[Batch] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def waiting(self) -> int:
        """The number of reports and batches that the hub has not answered."""
        return len(self._queue) + len(self.outbox)

    def add(self, report: Report, logs: Sequence[LogText] = ()) -> None:
        self._queue.append((report, logs))
        self._idle.clear()
        self._wake.set()

    def add_result(self, attempt_id: str, result: AttemptResult, logs: Sequence[LogText] = ()) -> None:
        try:
            report = result.report(attempt_id)
        except ValueError as error:  # for example broken Unicode
            report = failed_result(Reason.EXCEPTION, f"the result cannot be sent: {error}").report(attempt_id)
        self.add(report, logs)

    def load(self) -> list[str]:
        """Load reports of an earlier run; returns their attempt ids, which this node still holds."""
        self._ready.extend(self.outbox.load())
        if self._ready:
            self._idle.clear()
            self._wake.set()
        return [report.attempt_id for batch in self._ready for report in batch.request.reports]

    async def run(self) -> None:
        while True:
            await self._wake.wait()
            while self._ready or self._queue:
                if not self._ready:
                    await self._collect()
                    self._form_batch()
                await self._deliver_and_spill(self._ready[0])
                self._ready.popleft()
            self._wake.clear()
            self._idle.set()

    async def wait_until_flushed(self) -> None:
        await self._idle.wait()

    def spill(self) -> None:
        """Save everything that is only in memory."""
        while self._queue:
            self._form_batch()

    # ------------------------------------------------------------ batches
    async def _collect(self) -> None:
        left_s = self._sent_at + self.node.limits.busy_gap_s - self.node.clock.steady()
        if left_s > 0 and self.is_busy() and len(self._queue) < self.node.limits.batch_reports_max:
            await asyncio.sleep(left_s)
        self._sent_at = self.node.clock.steady()

    def _form_batch(self) -> None:
        reports: list[Report] = []
        logs: list[LogText] = []
        size = 0
        while self._queue and len(reports) < min(self.node.limits.batch_reports_max, REPORTS_MAX):
            report, texts = self._queue[0]
            # Everything but the texts is a few hundred bytes.
            weight = 300 + len(report.result or "") + sum(len(text.text) for text in texts)
            too_many = len(logs) + len(texts) > LOGS_MAX
            if reports and (too_many or size + weight > self.node.limits.batch_bytes_max):
                break
            self._queue.popleft()
            reports.append(report)
            logs.extend(texts)
            size += weight
        self._ready.append(self._save(reports, logs))

    def _save(self, reports: list[Report], logs: list[LogText]) -> Batch:
        return self.outbox.put(
            self.node.identity.sign_message(CompleteRequest(reports=reports, logs=logs, signature=UNSIGNED))
        )

    async def _deliver_and_spill(self, batch: Batch) -> None:
        delivery = asyncio.create_task(self._deliver(batch))
        try:
            while not (await asyncio.wait({delivery}, timeout=SPILL_S))[0]:
                self.spill()
            delivery.result()
        finally:
            delivery.cancel()
            await asyncio.gather(delivery, return_exceptions=True)

    async def _deliver(self, batch: Batch) -> None:
        open_ids = {report.attempt_id for report in batch.request.reports}
        while open_ids:
            if self.outbox.is_expired(batch):
                _log.error("discarding %d reports that the hub did not accept in time", len(open_ids))
                for attempt_id in open_ids:
                    self.on_settled(attempt_id)
                break
            try:
                batch = await self._send_ahead(batch)
                reply = await self.node.client.complete(self.outbox.restamp(batch))
            except TRANSIENT_OR_FULL as error:
                await self._pause(error)
            except ComputePoolError as error:
                await self._handle_refusal(batch, error)
                return
            else:
                self._backoff.reset()
                for answer in reply.answers:
                    if answer.attempt_id in open_ids:
                        open_ids.discard(answer.attempt_id)
                        self._receive(answer)
                if open_ids:
                    _log.warning("the hub did not answer %d reports; sending them again", len(open_ids))
                    await self._pause(None)
        self.outbox.remove(batch)

    async def _send_ahead(self, batch: Batch) -> Batch:
        """Send output that is too long for one request before the reports. The hub keeps repeated chunks once."""
        texts, limits = batch.request.logs, self.node.limits
        if sum(len(text.text) for text in texts) <= limits.log_request_chars_max:
            return batch
        while texts:
            count, chars = 1, len(texts[0].text)
            while count < min(len(texts), limits.log_request_chunks_max):
                chars += len(texts[count].text)
                if chars > limits.log_request_chars_max:
                    break
                count += 1
            await self.node.client.logs(LogsRequest(chunks=texts[:count]))
            texts = texts[count:]
        # They stay on disk: an agent that is killed sends them again.
        request = batch.request.model_copy(update={"logs": []})
        return replace(batch, request=request, body=request.model_dump_json(exclude_defaults=True).encode())

    async def _handle_refusal(self, batch: Batch, error: ComputePoolError) -> None:
        """Send the reports one by one: one that the hub refuses must not hold back the others."""
        reports = batch.request.reports
        if len(reports) == 1:
            _log.error("the hub refused the report of %s: %s", reports[0].attempt_id, error.detail)
            self.on_settled(reports[0].attempt_id)
            self.outbox.remove(batch)
            return
        parts = []
        for report in reports:
            logs = [text for text in batch.request.logs if text.attempt_id == report.attempt_id]
            parts.append(self._save([report], logs))
        self.outbox.remove(batch)
        for part in parts:
            await self._deliver(part)

    def _receive(self, answer: ReportAnswer) -> None:
        if answer.verdict in (Verdict.CONFLICT, Verdict.FOREIGN):
            _log.warning("the hub answered %s for attempt %s", answer.verdict, answer.attempt_id)
        self.on_settled(answer.attempt_id)

    async def _pause(self, error: ComputePoolError | None) -> None:
        delay_s = self._backoff.delay_s(error)
        if error is not None:
            _log.warning("reports are saved; retrying in %.1f s: %s", delay_s, error.detail)
        await asyncio.sleep(delay_s)
