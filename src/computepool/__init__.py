"""ComputePool: `from computepool import connect`.

Names are loaded when they are used, so that importing the agent or the core never loads the SDK.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from computepool.sdk import (
        AsyncPool,
        Collector,
        ComputeJob,
        ComputeJobState,
        ComputePoolError,
        HubUnreachable,
        JobCancelled,
        JobError,
        JobExpired,
        JobFailed,
        JobFuture,
        JobOptions,
        JobOutcome,
        JobReport,
        Pool,
        PoolExecutor,
        checkpoint,
        connect,
        connect_async,
        dispatch_to,
        job_slice,
        outputs,
        progress,
        restored,
        stopping,
        submit_compute_job_group,
        verify_webhook,
    )

__all__ = [
    "AsyncPool",
    "Collector",
    "ComputeJob",
    "ComputeJobState",
    "ComputePoolError",
    "HubUnreachable",
    "JobCancelled",
    "JobError",
    "JobExpired",
    "JobFailed",
    "JobFuture",
    "JobOptions",
    "JobOutcome",
    "JobReport",
    "Pool",
    "PoolExecutor",
    "checkpoint",
    "connect",
    "connect_async",
    "dispatch_to",
    "job_slice",
    "outputs",
    "progress",
    "restored",
    "stopping",
    "submit_compute_job_group",
    "verify_webhook",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'computepool' has no attribute {name!r}")
    value = getattr(importlib.import_module("computepool.sdk"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
