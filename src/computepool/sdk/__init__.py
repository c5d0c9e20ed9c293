"""The SDK's public names, loaded on first use. Everything else in this package may change."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from computepool.core.errors import (
    BadRequest,
    ComputePoolError,
    Conflict,
    Forbidden,
    InsufficientCredits,
    NotFound,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from computepool.sdk.errors import (
    ChecksumMismatch,
    HubUnreachable,
    JobCancelled,
    JobError,
    JobExpired,
    JobFailed,
    ResultUnreadable,
)

if TYPE_CHECKING:
    from computepool.sdk.classes.collector import Collector, DrainTimeout
    from computepool.sdk.classes.compute_job import ComputeJob, ComputeJobState, LocalReport, ReportError
    from computepool.sdk.classes.job_classes import JobReport
    from computepool.sdk.classes.job_groups import GroupSubmission, submit_compute_job_group
    from computepool.sdk.jobs.aio import AsyncMapRun, AsyncPool, connect_async
    from computepool.sdk.jobs.executor import PoolExecutor
    from computepool.sdk.jobs.futures import JobFuture
    from computepool.sdk.jobs.mapping import MapRun
    from computepool.sdk.jobs.options import JobOptions
    from computepool.sdk.jobs.outcome import JobOutcome
    from computepool.sdk.jobs.submitter import Submitter
    from computepool.sdk.pool import Pool, connect
    from computepool.sdk.resources.webhooks import WebhookError, verify_webhook
    from computepool.sdk.runtime.checkpointing import checkpoint, dispatch_to, restored, stopping
    from computepool.sdk.runtime.job_context import gang, job_slice, outputs, progress
    from computepool.sdk.runtime.nested import send_to_collector

# A literal list: type checkers do not evaluate expressions here.
__all__ = [
    "AsyncMapRun", "AsyncPool", "BadRequest", "ChecksumMismatch", "Collector", "ComputeJob", "ComputeJobState",
    "ComputePoolError", "Conflict", "DrainTimeout", "Forbidden", "GroupSubmission", "HubUnreachable",
    "InsufficientCredits", "JobCancelled", "JobError", "JobExpired", "JobFailed", "JobFuture", "JobOptions",
    "JobOutcome", "JobReport", "LocalReport", "MapRun", "NotFound", "Pool", "PoolExecutor", "ReportError",
    "ResultUnreadable", "Submitter", "TooLarge", "Unauthenticated", "Unavailable", "WebhookError", "checkpoint",
    "connect", "connect_async", "dispatch_to", "gang", "job_slice", "outputs", "progress", "restored", "send_to_collector",
    "stopping", "submit_compute_job_group", "verify_webhook",
]  # fmt: skip

_MODULES = {
    "classes.collector": ("Collector", "DrainTimeout"),
    "classes.compute_job": ("ComputeJob", "ComputeJobState", "LocalReport", "ReportError"),
    "classes.job_classes": ("JobReport",),
    "classes.job_groups": ("GroupSubmission", "submit_compute_job_group"),
    "jobs.aio": ("AsyncMapRun", "AsyncPool", "connect_async"),
    "jobs.executor": ("PoolExecutor",),
    "jobs.futures": ("JobFuture",),
    "jobs.mapping": ("MapRun",),
    "jobs.options": ("JobOptions",),
    "jobs.outcome": ("JobOutcome",),
    "jobs.submitter": ("Submitter",),
    "pool": ("Pool", "connect"),
    "resources.webhooks": ("WebhookError", "verify_webhook"),
    "runtime.checkpointing": ("checkpoint", "dispatch_to", "restored", "stopping"),
    "runtime.job_context": ("gang", "job_slice", "outputs", "progress"),
    "runtime.nested": ("send_to_collector",),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'computepool.sdk' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"computepool.sdk.{_PLACES[name]}"), name)
    return value
