"""Requests of a running job to the hub: child jobs, and messages to its group's collector.

Placed into every sandbox, next to job_context.py: imports only the standard library, cloudpickle and the other modules
there. A job has neither network nor key. It writes each request to a file and announces it in a line of output, as any
program can (docs/children.md); the agent relays it and puts the reply next to it.
"""

from __future__ import annotations

import base64
import functools
import itertools
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import cloudpickle

from computepool.core.errors import ERRORS_BY_CODE, ComputePoolError, Conflict
from computepool.protocol.values import values
from computepool.sdk.classes.compute_job import ComputeJob, ComputeJobState, encode_state, placement, run_job
from computepool.sdk.client.sizes import SIZES, SPEEDS, WORD_LISTS, batches, needs_of, seconds, words
from computepool.sdk.runtime.checkpointing import write_line

#: Interval of checks for a reply, at first and at most; and after how long a request is announced again.
_CHECK_S, _CHECK_MAX_S, _REPEAT_S = 0.005, 0.1, 2.0
_WAIT_MS = 20_000
_ITEMS_MAX = 1_000
#: Limit on the arguments in one request, well below what an agent relays (`AgentLimits.call_bytes_max`).
_BATCH_CHARS_MAX = 1_000_000
_NOT_INSIDE = "this works only inside a job that runs on a node"
_numbers = itertools.count(1)
_numbered_for = ""
_lock = threading.Lock()


class ChildFailed(RuntimeError):
    """A child job did not succeed."""

    def __init__(self, result: Mapping[str, Any]) -> None:
        why = result.get("error") or result["reason"]
        super().__init__(f"job {result['job_id']} {result['state']}: {why}")
        self.job_id, self.reason, self.remote_error = result["job_id"], result["reason"], result.get("error")

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {"job_id": self.job_id, "reason": self.reason, "error": self.remote_error, "state": "failed"}
        return ChildFailed, (fields,)


def is_inside() -> bool:
    return "COMPUTEPOOL_CALLS" in os.environ


def connect() -> ChildPool:
    """The pool that this job runs in. The job must have been submitted with children=N."""
    if not is_inside():
        raise RuntimeError(f"connect: {_NOT_INSIDE}")
    return ChildPool({})


def send_to_collector(value: object) -> int:
    """Send a message to the collector of this job's group. Returns its number in the group.

    Waits until the hub has it. Takes any value that a result may have without pickle, up to 16 KiB.
    """
    if not is_inside():
        raise RuntimeError(f"send_to_collector: {_NOT_INSIDE}")
    body = {"seq": _next_number(), "value": values.encode(value)}
    return int(call("POST", "messages", body)["number"])


def call(method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Send a request to the hub through the agent; `path` is relative to /attempts/ID/. Raises the hub's errors."""
    folder = Path(os.environ["COMPUTEPOOL_CALLS"])
    folder.mkdir(parents=True, exist_ok=True)
    name = uuid.uuid4().hex
    building = folder / f".{name}"
    building.write_text(json.dumps({"method": method, "path": path, "body": body}), encoding="utf-8")
    building.rename(folder / name)
    reply = json.loads(_wait_for_reply(folder / f"{name}.reply", f"::call {name}"))
    if "error" not in reply:
        return reply["body"]
    known = ERRORS_BY_CODE.get(reply["error"], ComputePoolError)
    raise known(reply["detail"], field=reply.get("field"))


def _wait_for_reply(file: Path, line: str) -> str:
    written_at, pause_s = 0.0, _CHECK_S
    while True:
        if time.monotonic() - written_at > _REPEAT_S:
            written_at = time.monotonic()
            write_line(line)
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            time.sleep(pause_s)
            pause_s = min(_CHECK_MAX_S, pause_s * 1.3)
            continue
        file.unlink()
        return text


def _next_number() -> int:
    """The next number of this attempt's requests. A warm worker runs several jobs, and each counts from 1."""
    global _numbers, _numbered_for
    attempt = f"{os.environ.get('COMPUTEPOOL_JOB_ID')}-{os.environ.get('COMPUTEPOOL_ATTEMPT')}"
    with _lock:
        if attempt != _numbered_for:
            _numbers, _numbered_for = itertools.count(1), attempt
        return next(_numbers)


class ChildFuture:
    """The future of a child job."""

    def __init__(self, job_id: str, *, read: Callable[[Mapping[str, Any]], Any]) -> None:
        self.job_id = job_id
        self._read = read
        self._result: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<ChildFuture {self.job_id}>"

    def done(self) -> bool:
        return self._poll(wait_ms=0)

    def result(self, timeout: float | None = None) -> Any:
        """The job's value. Raises ChildFailed if it did not succeed, or TimeoutError."""
        end = None if timeout is None else time.monotonic() + timeout
        while not self._poll(wait_ms=_wait_ms(end)):
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"Job {self.job_id} is not finished after {timeout:g} s")
        assert self._result is not None
        return self._read(self._result)

    def cancel(self) -> None:
        call("POST", f"jobs/{self.job_id}/cancel")

    def _poll(self, *, wait_ms: int) -> bool:
        if self._result is None:
            try:
                self._result = call("GET", f"jobs/{self.job_id}/result?wait_ms={wait_ms}")
            except Conflict:  # not finished
                return False
        return True


def _wait_ms(end: float | None) -> int:
    return _WAIT_MS if end is None else max(0, min(_WAIT_MS, round((end - time.monotonic()) * 1000)))


class ChildPool:
    """Submits child jobs from inside a job. They belong to its account, and end with it unless `detached`."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        unknown = set(options) - _OPTIONS
        if unknown:
            raise TypeError(
                f"{sorted(unknown)[0]!r} is not an option of a child job; choose from {', '.join(sorted(_OPTIONS))}"
            )
        self._options = dict(options)

    def options(self, **options: Any) -> ChildPool:
        """The same pool with these options for its jobs: `connect().options(cores=4, timeout="10m").submit(...)`."""
        return ChildPool({**self._options, **options})

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> ChildFuture:
        """Run `fn(*args, **kwargs)` on a node. All keyword arguments go to the function."""
        spec = {"kind": "function", **self._function(fn)}
        [job_id] = self._submit(spec, [{"payload": _pickle((args, kwargs))}])
        return ChildFuture(job_id, read=self._value)

    def map(self, fn: Callable[..., Any], /, *iterables: Iterable[Any]) -> Iterator[Any]:
        """Iterate over the results of `fn`, in order. Each item is a job of a new group; all are submitted at once."""
        items = [{"payload": _pickle((args, {}))} for args in zip(*iterables, strict=False)]
        spec: dict[str, Any] = {"kind": "function", **self._function(fn)}
        group_id = self.group(spec["name"])
        ids: list[str] = []
        for batch in batches(items, lambda item: len(item["payload"]), count_max=_ITEMS_MAX, size_max=_BATCH_CHARS_MAX):
            ids += self._submit(spec, batch, group_id=group_id)
        return self._in_order(group_id, ids)

    def command(self, argv: Sequence[object]) -> ChildFuture:
        """Run a program. The future's result is its exit code and the names of its output files."""
        line = [os.fspath(word) if isinstance(word, os.PathLike) else str(word) for word in argv]
        name = self._options.get("name") or Path(line[0]).name
        spec: dict[str, Any] = {"kind": "command", "name": name, "argv": line}
        [job_id] = self._submit(spec, [{}])
        return ChildFuture(job_id, read=_read_exit)

    def run(self, path: str | os.PathLike[str], args: Sequence[object] = ()) -> ChildFuture:
        """Run a local script."""
        name = self._options.get("name") or Path(path).name
        source = Path(path).read_text(encoding="utf-8")
        spec = {"kind": "script", "name": name, "source": source, "argv": [str(word) for word in args]}
        [job_id] = self._submit(spec, [{}])
        return ChildFuture(job_id, read=_read_exit)

    def group(self, name: str) -> str:
        """Create a group; submit jobs to it with `connect().options(group=ID)`."""
        return str(call("POST", "groups", {"seq": _next_number(), "name": name[:200]})["id"])

    # ------------------------------------------------------------ internal
    def _function(self, fn: Callable[..., Any]) -> dict[str, Any]:
        name = str(self._options.get("name") or getattr(fn, "__qualname__", type(fn).__name__))
        return {"name": name[:200] or "function", "function": _pickle(fn)}

    def _submit(self, spec: dict[str, Any], items: list[dict[str, Any]], *, group_id: str | None = None) -> list[str]:
        request = {"spec": {**spec, **_spec(self._options, spec["kind"])}, "items": items}
        request |= _terms(self._options)
        if group_id is not None:
            request["group_id"] = group_id
        detached = bool(self._options.get("detached"))
        body = {"seq": _next_number(), "request": request, "detached": detached}
        found: list[str] = call("POST", "jobs", body)["job_ids"]
        return found

    def _value(self, result: Mapping[str, Any]) -> Any:
        if result["state"] != "succeeded":
            raise ChildFailed(result)
        if result.get("result_artifact"):
            raise ValueError(f"the result of job {result['job_id']} is too large to read inside a job")
        text = result.get("result")
        allowed = bool(self._options.get("allow_pickle"))
        return None if text is None else values.decode(text, allow_pickle=allowed)

    def _in_order(self, group_id: str, ids: list[str]) -> Iterator[Any]:
        found: dict[str, Mapping[str, Any]] = {}
        cursor = 0
        for job_id in ids:
            while job_id not in found:
                page = call("GET", f"groups/{group_id}/results?after={cursor}&wait_ms={_WAIT_MS}")
                found |= {result["job_id"]: result for result in page["results"]}
                cursor = page["cursor"]
            yield self._value(found.pop(job_id))


@dataclass
class ChildGroup:
    """The result of `submit_compute_job_group` inside a job."""

    group_id: str
    job_ids: dict[str, str]
    futures: dict[str, ChildFuture] = field(repr=False)

    def drain(self) -> dict[str, Any]:
        """Wait for all jobs. Returns their reports by key; a failed job has a ChildFailed instead."""
        found: dict[str, Any] = {}
        for key, future in self.futures.items():
            try:
                found[key] = future.result()
            except ChildFailed as error:
                found[key] = error
        return found


def submit_compute_job_group(
    pool: ChildPool,
    job_class: type[ComputeJob[Any]],
    states: Sequence[ComputeJobState],
    *,
    name: str = "",
    **options: Any,
) -> ChildGroup:
    """Submit a job for each state, in a new group. The states determine where their jobs may run."""
    merged = pool.options(**options)
    group_id = merged.group(name or job_class.__name__)
    classes = tuple(dict.fromkeys(kind for state in states for kind in values.classes_in(state)))
    function = _pickle(functools.partial(run_job, job_class, classes))
    futures: dict[str, ChildFuture] = {}
    for place, state in enumerate(states, start=1):
        key = state.job_key = state.job_key or f"job-{place}"
        given = merged._options
        own = merged.options(
            **{option: [*words(given.get(option, ())), *more] for option, more in placement(state).items() if more}
        )
        spec = {"kind": "class", "name": job_class.__name__[:200], "function": function}
        payload = base64.b64encode(json.dumps([encode_state(state)]).encode()).decode()
        [job_id] = own._submit(spec, [{"key": key, "payload": payload}], group_id=group_id)
        futures[key] = ChildFuture(job_id, read=own._value)
    return ChildGroup(group_id, {key: future.job_id for key, future in futures.items()}, futures)


def _read_exit(result: Mapping[str, Any]) -> dict[str, Any]:
    if result["state"] != "succeeded":
        raise ChildFailed(result)
    return {"exit_code": result["exit_code"], "outputs": [file["name"] for file in result["outputs"]]}


def _pickle(thing: Any) -> str:
    return base64.b64encode(cloudpickle.dumps(thing)).decode()


# options, as for `pool.submit` outside of jobs

_SAME_NEEDS = ("cores", "gpus", "host", "isolation", "require", "prefer")
_SAME_SPEC = ("env", "allow_pickle", "checkpoints", "children")
_SPEC_LISTS = ("dependencies", "net", "labels")
_SAME_TERMS = ("retries", "priority", "verify", "confidence", "when")
_OPTIONS = frozenset(
    {
        *_SAME_NEEDS, *SIZES, *SPEEDS, *WORD_LISTS, *_SAME_SPEC, *_SPEC_LISTS, *_SAME_TERMS,
        "name", "timeout", "ttl", "budget", "max_price", "children_budget", "after", "group", "detached",
    }
)  # fmt: skip


def _spec(options: Mapping[str, Any], kind: str) -> dict[str, Any]:
    needs = needs_of(options, _SAME_NEEDS)
    if kind in ("function", "class"):  # only the same Python version can load the pickle
        needs["python"] = f"{sys.version_info.major}.{sys.version_info.minor}"
    made: dict[str, Any] = {"needs": needs} | {word: options[word] for word in _SAME_SPEC if word in options}
    made |= {word: words(options[word]) for word in _SPEC_LISTS if word in options}
    if "timeout" in options:
        made["timeout_s"] = seconds(options["timeout"], what="timeout")
    if "children_budget" in options:
        made["children_budget"] = _microcredits(options["children_budget"])
    return made


def _terms(options: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {word: options[word] for word in _SAME_TERMS if word in options}
    made |= {word: _microcredits(options[word]) for word in ("budget", "max_price") if word in options}
    if "ttl" in options:
        made["ttl_s"] = seconds(options["ttl"], what="ttl")
    if "after" in options:
        made["after"] = [getattr(job, "job_id", job) for job in options["after"]]
    if "group" in options:
        made["group_id"] = options["group"]
    return made


def _microcredits(value: Any) -> int:
    return int(Decimal(str(value)) * 1_000_000)


send_to_collector.__module__ = "computepool"
