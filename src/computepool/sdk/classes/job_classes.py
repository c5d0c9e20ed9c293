"""Job classes on the submitter's side: sends classes and states, turns states into options, and reads reports."""

from __future__ import annotations

import functools
import json
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from computepool.core.errors import BadRequest
from computepool.core.jobs.lifecycle import JobKind
from computepool.protocol.jobs.jobs import PAYLOAD_MAX, SOURCE_MAX, Item, JobSpec
from computepool.protocol.jobs.views import JobResult
from computepool.protocol.values import values
from computepool.sdk.classes.compute_job import ComputeJob, ComputeJobState, encode_state, placement, run_job
from computepool.sdk.client.sizes import words
from computepool.sdk.code import capabilities, functions
from computepool.sdk.errors import ResultUnreadable
from computepool.sdk.jobs import options
from computepool.sdk.jobs.options import JobOptions
from computepool.sdk.jobs.outcome import JobOutcome, read_value

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool

JobClass = type[ComputeJob[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobReport(JobOutcome):
    """The report of a successful job of a job class, and its output files (`download(folder)`)."""

    payload: Mapping[str, Any]
    key: str | None = None

    def __getitem__(self, name: str) -> Any:
        return self.payload[name]

    @classmethod
    def read(cls, pool: Pool, result: JobResult, *, allow_pickle: bool = False) -> JobReport:
        payload = read_value(pool, result, allow_pickle=allow_pickle)
        if not isinstance(payload, dict):
            raise ResultUnreadable(
                f"Job {result.job_id} reported {type(payload).__name__}, not a dict.", job_id=result.job_id
            )
        return cls.of(pool, result, payload=payload, key=result.key)


class Sender:
    """Sends one class for many states. Pickles it once for each set of dependencies."""

    def __init__(self, pool: Pool, job_class: JobClass, states: Sequence[ComputeJobState]) -> None:
        self._pool = pool
        self._class = checked_class(job_class)
        for state in states:
            check_state(job_class, state)
        self._classes = _classes_of(job_class.state_class(), states)
        self._sent: dict[tuple[str, ...], dict[str, str]] = {}

    def spec(self, given: JobOptions, *, inputs: Sequence[Any] = ()) -> JobSpec:
        named: JobOptions = {"name": self._class.__name__[:200], **capabilities.of_class(self._class), **given}
        dependencies = tuple(words(given.get("dependencies", ())))
        if dependencies not in self._sent:
            run = functools.partial(run_job, self._class, self._classes)
            pickled = functions.pickle_job_class(run, [self._class, *self._classes], dependencies=dependencies)
            sent = self._pool.artifacts.inline_or_put(pickled, "function", name="class.pickle", most=SOURCE_MAX)
            self._sent[dependencies] = sent
        return options.spec(
            named, inputs=inputs, kind=JobKind.CLASS, python=functions.PYTHON, **self._sent[dependencies]
        )

    def item(self, text: str, *, key: str | None) -> Item:
        """The state as a JSON list of arguments, which a worker reads without pickle."""
        data = json.dumps([text]).encode()
        sent = self._pool.artifacts.inline_or_put(data, "payload", name="state.json", most=PAYLOAD_MAX)
        return Item.model_validate({"key": key, **sent})


def checked_class(job_class: Any) -> JobClass:
    if not (isinstance(job_class, type) and issubclass(job_class, ComputeJob)):
        raise BadRequest(f"{job_class!r} is not a subclass of ComputeJob.")
    if job_class.run_compute_job is ComputeJob.run_compute_job:
        raise BadRequest(f"{job_class.__name__} has no run_compute_job().")
    try:
        job_class.state_class()
    except TypeError as error:
        raise BadRequest(f"{error}.") from error
    return job_class


def check_state(job_class: JobClass, state: Any) -> None:
    expected = job_class.state_class()
    if type(state) is not expected:
        raise BadRequest(f"{job_class.__name__} takes states of {expected.__name__}, not {type(state).__name__}.")


def state_text(state: ComputeJobState) -> str:
    try:
        return encode_state(state)
    except ValueError as error:
        raise BadRequest(f"The state of {state.job_key or 'a job'} cannot be sent: {error}.") from error


def with_state(options: JobOptions, state: ComputeJobState, *, home: str | None) -> JobOptions:
    """The options, with the state's tags and exclusions. `home`: the home host, excluded unless the state allows it."""
    merged: dict[str, Any] = dict(options)
    added = placement(state)
    if home and not state.allow_home_compute:
        added["exclude_hosts"].append(home)
    for option, more in added.items():
        if more:
            merged[option] = list(dict.fromkeys([*words(merged.get(option, ())), *more]))
    return typing.cast("JobOptions", merged)


def _classes_of(state_class: type, states: Sequence[ComputeJobState]) -> tuple[type, ...]:
    """Classes of objects in the states, and classes that the annotations of their fields mention."""
    found: dict[type, None] = dict.fromkeys(_annotated_types(state_class))
    for state in states:
        found |= dict.fromkeys(values.classes_in(state))
    return tuple(sorted(found, key=lambda kind: (kind.__module__, kind.__qualname__)))


def _annotated_types(state_class: type) -> set[type]:
    found: set[type] = set()
    todo: list[Any] = [state_class]
    while todo:
        kind = todo.pop()
        todo += typing.get_args(kind)
        if not isinstance(kind, type) or kind in found:
            continue
        if is_dataclass(kind):
            found.add(kind)
            todo += _hints(kind)
        elif issubclass(kind, Enum) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
            found.add(kind)
    return found


def _hints(kind: type) -> list[Any]:
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001 - evaluating an annotation may raise anything
        return []
    return [hints[field.name] for field in fields(kind) if field.name in hints]
