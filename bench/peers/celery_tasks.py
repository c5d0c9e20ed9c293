"""What the Celery worker runs. Its settings come from the process that measures it."""

from __future__ import annotations

import os
import subprocess

from celery import Celery

from bench.peers.celery_names import ADDRESS, KEEP
from bench.peers.measure import TRUE

app = Celery("bench", broker=f"{os.environ[ADDRESS]}/0", backend=f"{os.environ[ADDRESS]}/1")
app.conf.update(worker_hijack_root_logger=False, broker_connection_retry_on_startup=True, result_expires=600)
if KEEP in os.environ:
    # A task is forgotten only once it has run, as a job that must not get lost needs it.
    app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1)


@app.task  # type: ignore[untyped-decorator]
def noop(number: int) -> int:
    return number


@app.task  # type: ignore[untyped-decorator]
def start_process(_number: int) -> int:
    return subprocess.run([TRUE], stdin=subprocess.DEVNULL, check=True).returncode
