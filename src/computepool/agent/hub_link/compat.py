"""Requests for hubs of an older version: without fields that such a hub does not know.

Hubs refuse unknown fields, and a pool may have hubs of two versions while it is upgraded.
"""

from __future__ import annotations

from computepool.core.errors import BadRequest
from computepool.protocol.jobs.checkpoints import CheckpointReport
from computepool.protocol.nodes.nodes import (
    CompleteRequest,
    LoadModel,
    LogsRequest,
    LogText,
    NextRequest,
    Profile,
    RunningAttempt,
)

#: What was added since; a hub can do without it, and it is no part of what a node signs.
_ADDED = frozenset(
    [
        "ago_ms",
        "earlier",
        "fetches_python",
        "gpu_percent",
        "loads",
        "place",
        "printed_chars",
        "seq",
        "stopping",
        "vram_mb",
    ]
)


def is_unknown(error: BadRequest) -> bool:
    """True if the hub refused one of these fields."""
    return error.field is not None and not _ADDED.isdisjoint(error.field.split("."))


def poll(request: NextRequest) -> NextRequest:
    running = [_running(attempt) for attempt in request.running]
    sent = None if request.profile is None else profile(request.profile)
    return request.model_copy(update={"running": running, "profile": sent, "stopping": False})


def profile(sent: Profile) -> Profile:
    return sent.model_copy(update={"place": None, "fetches_python": []})


def reports(body: bytes) -> bytes:
    """A CompleteRequest without new fields; its signature stays valid."""
    request = CompleteRequest.model_validate_json(body)
    plain = [report.model_copy(update={"loads": [], "printed_chars": None}) for report in request.reports]
    sent = {"reports": plain, "logs": [_text(text) for text in request.logs]}
    return request.model_copy(update=sent).model_dump_json(exclude_defaults=True).encode()


def logs(request: LogsRequest) -> LogsRequest:
    return LogsRequest(chunks=[_text(chunk) for chunk in request.chunks])


def is_unknown_host(error: BadRequest, sent: CheckpointReport) -> bool:
    """True if the hub does not accept the target host together with a checkpoint."""
    return sent.move_to is not None and error.field == "move_to"


def checkpoint(sent: CheckpointReport) -> CheckpointReport:
    """Without the host, which the report that follows names. The signature covers it, so sign again."""
    return sent.model_copy(update={"move_to": None})


def _running(attempt: RunningAttempt) -> RunningAttempt:
    load = attempt.load
    plain = load and LoadModel(cpu_percent=load.cpu_percent, rss_mb=load.rss_mb, processes=load.processes)
    return attempt.model_copy(update={"load": plain, "earlier": []})


def _text(text: LogText) -> LogText:
    return text.model_copy(update={"seq": None})
