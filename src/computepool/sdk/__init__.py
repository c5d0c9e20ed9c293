"""The SDK's public names. Everything else in this package may change."""

from __future__ import annotations

from computepool.sdk.classes.collector import Collector, DrainTimeout
from computepool.sdk.classes.compute_job import ComputeJob, ComputeJobState, LocalReport, ReportError
from computepool.sdk.classes.job_classes import JobReport
from computepool.sdk.classes.job_groups import GroupSubmission, submit_compute_job_group
from computepool.sdk.errors import (
    BadRequest,
    ChecksumMismatch,
    ComputePoolError,
    Conflict,
    Forbidden,
    HubUnreachable,
    InsufficientCredits,
    JobCancelled,
    JobError,
    JobExpired,
    JobFailed,
    NotFound,
    ResultUnreadable,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
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
from computepool.sdk.runtime.job_context import job_slice, outputs, progress
from computepool.sdk.runtime.nested import send_to_collector

__all__ = [
    "AsyncMapRun",
    "AsyncPool",
    "BadRequest",
    "ChecksumMismatch",
    "Collector",
    "ComputeJob",
    "ComputeJobState",
    "ComputePoolError",
    "Conflict",
    "DrainTimeout",
    "Forbidden",
    "GroupSubmission",
    "HubUnreachable",
    "InsufficientCredits",
    "JobCancelled",
    "JobError",
    "JobExpired",
    "JobFailed",
    "JobFuture",
    "JobOptions",
    "JobOutcome",
    "JobReport",
    "LocalReport",
    "MapRun",
    "NotFound",
    "Pool",
    "PoolExecutor",
    "ReportError",
    "ResultUnreadable",
    "Submitter",
    "TooLarge",
    "Unauthenticated",
    "Unavailable",
    "WebhookError",
    "checkpoint",
    "connect",
    "connect_async",
    "dispatch_to",
    "job_slice",
    "outputs",
    "progress",
    "restored",
    "send_to_collector",
    "stopping",
    "submit_compute_job_group",
    "verify_webhook",
]
