"""The module `computepool` inside jobs that do not install the whole package: the agent puts this file there.

The modules of `MODULES` come with it, under the names that they have in the whole package, so that objects pickled by
name on a submitter's machine are found. Runs inside the sandbox: standard library only, and modules are loaded on first
use, because most jobs need none.
"""

from __future__ import annotations

import importlib
from typing import Any

#: Files of the package that travel into every sandbox. Each may import the standard library and the others alone.
MODULES = (
    "core/errors.py",
    "protocol/jobs/bundles.py",
    "protocol/values/results.py",
    "protocol/values/values.py",
    "protocol/values/values_arrow.py",
    "protocol/values/values_records.py",
    "protocol/values/values_tables.py",
    "sdk/classes/compute_job.py",
    "sdk/client/sizes.py",
    "sdk/runtime/checkpointing.py",
    "sdk/runtime/job_context.py",
    "sdk/runtime/nested.py",
)

#: The names that `import computepool` gives to a job, with their modules.
_MODULE_OF = {
    "checkpoint": "runtime.checkpointing",
    "dispatch_to": "runtime.checkpointing",
    "restored": "runtime.checkpointing",
    "stopping": "runtime.checkpointing",
    "ComputeJob": "classes.compute_job",
    "ComputeJobState": "classes.compute_job",
    "connect": "runtime.nested",
    "send_to_collector": "runtime.nested",
    "submit_compute_job_group": "runtime.nested",
    "job_slice": "runtime.job_context",
    "outputs": "runtime.job_context",
    "progress": "runtime.job_context",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(
            f"a job's computepool has no {name!r}; it has {', '.join(sorted(_MODULE_OF))}."
            " The whole package is there for jobs that list it among their dependencies."
        )
    value = getattr(importlib.import_module(f"computepool.sdk.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
