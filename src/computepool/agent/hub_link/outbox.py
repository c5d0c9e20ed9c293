"""Reports that the hub has not answered yet, kept as files so that they outlive the agent.

One file per batch, written whole under another name and then renamed. No fsync: a killed agent loses nothing, and
after a power cut the hub runs the attempts again, which is what it would do anyway.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from computepool.agent.clock import AgentClock
from computepool.protocol.nodes.nodes import CompleteRequest

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    name: str
    saved_ms: int
    request: CompleteRequest
    body: bytes


class Outbox:
    def __init__(self, folder: Path, *, clock: AgentClock, age_max_s: float) -> None:
        self._folder, self._path = folder, str(folder)
        self._clock = clock
        self._age_max_ms = int(age_max_s * 1000)
        self._counter = 0
        self._count = 0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The start time makes names unique and ordered: two agents never share a folder (main.py holds a lock).
        self._prefix = f"{clock.now_ms():015d}"

    def __len__(self) -> int:
        return self._count

    def put(self, request: CompleteRequest) -> Batch:
        """Save a batch. On a full disk it is kept in memory alone."""
        saved_ms = self._clock.now_ms()
        body = request.model_dump_json(exclude_defaults=True).encode()
        self._counter += 1
        self._count += 1
        name = f"{self._prefix}-{self._counter:09d}"
        try:
            self._write(name, b"%d\n%b" % (saved_ms, body))
        except OSError as error:
            _log.error("cannot save reports to disk: %s", error)
        return Batch(name=name, saved_ms=saved_ms, request=request, body=body)

    def _write(self, name: str, data: bytes) -> None:
        # Plain calls: Path objects cost as much as the writing.
        temporary = f"{self._path}/{name}.part"
        try:
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                left = memoryview(data)
                while left:
                    left = left[os.write(fd, left) :]
            finally:
                os.close(fd)
            os.rename(temporary, f"{self._path}/{name}.json")
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    def remove(self, batch: Batch) -> None:
        _drop(f"{self._path}/{batch.name}.json")
        self._count = max(0, self._count - 1)

    def is_expired(self, batch: Batch) -> bool:
        return self._clock.now_ms() - batch.saved_ms > self._age_max_ms

    def restamp(self, batch: Batch) -> bytes:
        """The body with `ended_ago_ms` increased by the time it waited here. The signature does not cover it."""
        waited_ms = self._clock.now_ms() - batch.saved_ms
        if waited_ms < 1_000:
            return batch.body
        reports = [
            report.model_copy(update={"ended_ago_ms": report.ended_ago_ms + waited_ms})
            for report in batch.request.reports
        ]
        request = batch.request.model_copy(update={"reports": reports})
        return request.model_dump_json(exclude_defaults=True).encode()

    def load(self) -> Iterator[Batch]:
        """Batches of an earlier run, oldest first. Damaged and outdated files are dropped."""
        for path in self._folder.glob("*.part"):
            _drop(path)
        for path in sorted(self._folder.glob("*.json")):
            batch = _read(path)
            if batch is None or self.is_expired(batch):
                _log.warning("dropping reports that are damaged or too old: %s", path.name)
                _drop(path)
                continue
            self._count += 1
            yield batch


def _drop(path: str | Path) -> None:
    """If this fails, the next start sends the batch again, and the hub gives the same reply."""
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
    except OSError as error:
        _log.error("cannot remove delivered reports from disk: %s", error)


def _read(path: Path) -> Batch | None:
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        request = CompleteRequest.model_validate_json(body)
        return Batch(name=path.stem, saved_ms=int(head), request=request, body=body)
    except (OSError, ValueError, ValidationError) as error:
        _log.warning("cannot read %s: %s", path, error)
        return None
