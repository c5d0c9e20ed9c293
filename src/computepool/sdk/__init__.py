"""The SDK's public names. Everything else in this package may change."""

from __future__ import annotations

from computepool.sdk.aio import AsyncMapRun, AsyncPool, connect_async
from computepool.sdk.checkpointing import checkpoint, dispatch_to, restored, stopping
from computepool.sdk.collector import Collector, DrainTimeout
from computepool.sdk.computejob import ComputeJob, ComputeJobState, LocalReport, ReportError
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
from computepool.sdk.executor import PoolExecutor
from computepool.sdk.futures import JobFuture
from computepool.sdk.jobclasses import JobReport
from computepool.sdk.jobgroups import GroupSubmission, submit_compute_job_group
from computepool.sdk.mapping import MapRun
from computepool.sdk.nested import send_to_collector
from computepool.sdk.options import JobOptions
from computepool.sdk.outcome import JobOutcome
from computepool.sdk.pool import Pool, connect
from computepool.sdk.running import job_slice, outputs, progress
from computepool.sdk.submitter import Submitter
from computepool.sdk.webhooks import WebhookError, verify_webhook

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
