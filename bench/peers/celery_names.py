"""Environment variables between the benchmark, the process that measures Celery, and Celery's worker."""

from __future__ import annotations

REDIS_SERVER = "BENCH_REDIS_SERVER"
ADDRESS = "BENCH_REDIS_URL"
KEEP = "BENCH_CELERY_KEEP"
