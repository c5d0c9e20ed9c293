"""Results of other jobs among pickled arguments: each is pickled as a call of `result_of`, which finds it on the node.

Copied into sandboxes next to values.py, so it uses only the standard library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

_results: Mapping[str, Any] = {}


@contextmanager
def provide(results: Mapping[str, Any]) -> Iterator[None]:
    """While arguments are loaded: the results by job. A worker loads the arguments of one call at a time."""
    global _results  # noqa: PLW0603 - pickles can only name a global function
    _results = results
    try:
        yield
    finally:
        _results = {}


def result_of(job_id: str) -> Any:
    if job_id not in _results:
        raise LookupError(f"the result of job {job_id} is not among the arguments of this one")
    return _results[job_id]
