"""The tasks of the Celery worker. Its settings come from the process that measures it."""

from __future__ import annotations

import os

from celery import Celery

from bench.peers import measure
from bench.peers.celery_redis import ADDRESS, KEEP

app = Celery("bench", broker=f"{os.environ[ADDRESS]}/0", backend=f"{os.environ[ADDRESS]}/1")
app.conf.update(worker_hijack_root_logger=False, broker_connection_retry_on_startup=True, result_expires=600)
if KEEP in os.environ:
    # A task is acknowledged only after it has run, so that it cannot get lost.
    app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1)

noop = app.task(measure.noop)
start_process = app.task(measure.start_process)
