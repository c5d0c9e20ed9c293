"""The joblib backend: `with joblib.parallel_backend("computepool"): GridSearchCV(...).fit(X, y)`.

`import computepool` registers it. joblib batches short tasks by their run time; each batch is a job. The backend takes
the options of jobs, and `pool`.
"""

from __future__ import annotations

import importlib.metadata
import operator
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, SequentialBackend, ThreadingBackend

from computepool.protocol.jobs.groups import GroupRequest
from computepool.protocol.jobs.jobs import BUNDLED_MAX
from computepool.sdk.client.session import GroupSession
from computepool.sdk.code import functions
from computepool.sdk.jobs.options import JobOptions
from computepool.sdk.jobs.submitter import Submitter
from computepool.sdk.pool import Pool, connect

#: Distributions whose objects are typically sent, by module. Nodes need the same versions to unpickle them.
_SHARED_PACKAGES = {
    "joblib": "joblib",
    "sklearn": "scikit-learn",
    "numpy": "numpy",
    "scipy": "scipy",
    "pandas": "pandas",
}

_lock = threading.Lock()
_default: Pool | None = None


def _default_pool() -> Pool:
    """The connection for contexts without `pool=`."""
    global _default  # noqa: PLW0603 - created on first use
    with _lock:
        if _default is None:
            _default = connect()
        return _default


class ComputePoolBackend(AutoBatchingMixin, ParallelBackendBase):  # type: ignore[misc]
    supports_retrieve_callback = True
    supports_inner_max_num_threads = True
    supports_sharedmem = False
    uses_threads = False
    default_n_jobs = -1

    def __init__(
        self,
        *,
        pool: Pool | None = None,
        nesting_level: int | None = None,
        inner_max_num_threads: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(nesting_level=nesting_level, inner_max_num_threads=inner_max_num_threads)
        for word in ("checkpoints", "moves"):
            if options.get(word):
                raise TypeError(
                    f"{word!r} is not supported with joblib: several calls share a job, and would share its checkpoints."
                    " Use pool.map or pool.submit."
                )
        self._pool = _default_pool() if pool is None else pool
        self._work = Submitter(self._pool, self._with_defaults(options))
        self._cores = self._work.needs.cores
        self._session: GroupSession | None = None
        self._session_lock = threading.Lock()

    def _with_defaults(self, options: dict[str, Any]) -> JobOptions:
        """Add the packages in use here, and as many threads per call as it has cores.

        Results are not verified by default: those of scikit-learn contain the time that each fit took.
        """
        threads = self.inner_max_num_threads or max(1, int(options.get("cores", 1)))
        env = {**dict.fromkeys(self.MAX_NUM_THREADS_VARS, str(threads)), **options.get("env", {})}
        checks = {} if {"verify", "confidence"} & options.keys() else {"verify": "none"}
        given: Any = {"name": "joblib", "dependencies": same_versions(), **checks, **options, "env": env}
        completed: JobOptions = given
        return completed

    # ------------------------------------------------------------ joblib's interface
    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """The number of concurrent calls: as given, or, if negative, the approximate capacity of the pool."""
        if n_jobs == 0:
            raise ValueError("n_jobs == 0 in Parallel has no meaning")
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        nodes = [node for node in self._pool.jobs.queue().nodes if node.online]
        slots = sum(int(node.cores_total / self._cores) for node in nodes)
        return max(2, slots + 1 + (-1 if n_jobs is None else n_jobs))

    def configure(self, n_jobs: int = 1, parallel: Any = None, **others: Any) -> int:
        self.parallel = parallel
        return self.effective_n_jobs(n_jobs)

    def submit(self, func: Any, callback: Callable[[Future[Any]], object] | None = None) -> Future[Any]:
        future = self._submit(func)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    apply_async = submit  #: its name in older versions

    def _submit(self, batch: Any) -> Future[Any]:
        try:
            submission = self._work.function(operator.call)
            bundled = min(BUNDLED_MAX, max(1, len(batch))) if hasattr(batch, "__len__") else 1
            item = self._work.item(functions.pickle_arguments((batch,), {}), bundled=bundled)
            return self._own_session().submit(submission, item)
        except Exception as error:  # noqa: BLE001 - joblib may call from a thread that would swallow it
            future: Future[Any] = Future()
            future.set_exception(error)
            return future

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        return out.result()

    def abort_everything(self, ensure_ready: bool = True) -> None:
        if (session := self._pop_session()) is not None:
            session.abandon()

    def terminate(self) -> None:
        if (session := self._pop_session()) is not None:
            session.close()

    def get_nested_backend(self) -> tuple[Any, int | None]:
        """Nested calls run on the node of the outer call: in threads, or sequentially if it has one core."""
        level = (self.nesting_level or 0) + 1
        if self._cores >= 2:
            return ThreadingBackend(nesting_level=level), int(self._cores)
        return SequentialBackend(nesting_level=level), None

    def _pop_session(self) -> GroupSession | None:
        with self._session_lock:
            session, self._session = self._session, None
            return session

    def _own_session(self) -> GroupSession:
        """Each call of Parallel has its own group at the hub."""
        with self._session_lock:
            if self._session is None:
                self._session = self._pool.new_session(GroupRequest(name="joblib", kind="map"))
            return self._session


def same_versions() -> list[str]:
    """Requirements for the shared packages that are loaded here."""
    loaded = [name for module, name in _SHARED_PACKAGES.items() if module in sys.modules]
    return [f"{name}=={importlib.metadata.version(name)}" for name in loaded]
