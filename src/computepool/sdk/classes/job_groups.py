"""`submit_compute_job_group`: many jobs of one class, whose keys are registered before the first one runs.

If this process is interrupted, the same call with `group_id=` registers and submits what is missing. Nothing is submitted
twice, because each key has one job.
"""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from computepool.core.errors import BadRequest, ComputePoolError, Conflict, TooLarge
from computepool.core.jobs.lifecycle import JobState
from computepool.protocol.jobs.groups import GroupView
from computepool.protocol.jobs.jobs import ITEMS_MAX, Item, JobSpec
from computepool.sdk.classes import job_classes
from computepool.sdk.classes.collector import Collector
from computepool.sdk.classes.compute_job import ComputeJobState
from computepool.sdk.classes.homes import find_home
from computepool.sdk.classes.job_classes import JobClass, JobReport, Sender
from computepool.sdk.classes.summary import Summary
from computepool.sdk.client.session import BATCH_BYTES_MAX
from computepool.sdk.client.sizes import batches
from computepool.sdk.jobs.options import JobOptions
from computepool.sdk.jobs.submitter import Submitter, share

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool

_NAMES_SHOWN = 5
#: Fields whose refusal depends on the current balance and limits of the account.
_ACCOUNT_FIELDS = ("max_price", "budget")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSubmission:
    """A submitted group. Its ID is all that is needed to find everything again, from anywhere."""

    group_id: str
    collector: Collector
    job_ids: Mapping[str, str]  #: by key
    failures: Mapping[str, str]  #: keys whose jobs were refused, with the reason; also reported to the collector
    home: str | None = None  #: name of the host where the results go
    _pool: Pool = field(repr=False, compare=False)
    _allow_pickle: bool = field(default=False, repr=False)

    def drain(
        self,
        timeout: float | None = None,
        progress: Callable[[GroupView], object] | None = None,
        *,
        notify: bool = False,
    ) -> Summary:
        """Wait until every key has an outcome; see `Collector.drain`."""
        return self.collector.drain(timeout, progress, notify=notify)

    def reports(self, *, follow: bool = False) -> Iterator[JobReport]:
        """Iterate over successful reports in order of arrival; with `follow`, until nothing is pending."""
        for result in self.collector.results(follow=follow):
            if result.state is JobState.SUCCEEDED and result.job_id:  # a key reported without a job has no ID
                yield JobReport.read(self._pool, result, allow_pickle=self._allow_pickle)


def submit_compute_job_group(
    pool: Pool,
    job_class: JobClass,
    states: Iterable[ComputeJobState],
    *,
    return_home_when_complete: bool = True,
    home: str | None = None,
    group_id: str | None = None,
    **options: Unpack[JobOptions],
) -> GroupSubmission:
    """Submit one job per state. The hub keeps the results and delivers them to the `home` host when all are in.

    `name`: of the group. `group_id`: continue an interrupted submission; pass the same states.

    >>> submit_compute_job_group(pool, Count, [CountState(job_key="a", text="…")], home="laptop")
    """
    name = options.pop("name", None) or job_classes.checked_class(job_class).__name__
    if isinstance(states, ComputeJobState):
        raise BadRequest("states: pass a list of states; for a single one, [state].")
    if "group" in options:
        raise BadRequest("group: to continue an existing group, pass group_id=.")
    work = Submitter(pool, options)
    keyed = _assign_keys(job_class, list(states))
    sender = Sender(pool, job_class, keyed)
    sender.spec(options)  # raises errors that concern all states before there is a group
    known = None if group_id is None else pool.groups.get(group_id)
    home_id, home_name = _home(pool, keyed, home=home, known=known, required=return_home_when_complete)
    for state in keyed:  # so that jobs can dispatch to it
        if home_name and not state.home_host_name:
            object.__setattr__(state, "home_host_name", home_name)
    texts = {state.job_key: job_classes.state_text(state) for state in keyed}
    submission = _Submission(pool, work, sender, options=options, count=len(keyed))
    group = known or pool.groups.create(name, home=home_id, return_home=return_home_when_complete)
    _warn_if_only_home(pool, keyed, home_id=home_id, home_name=home_name)
    try:
        submission.run(group.id, keyed, texts, home_id=home_id, fresh=known is None)
    except BaseException as error:
        error.add_note(
            f"Group {group.id} was submitted in part. To continue, pass the same states and group_id={group.id!r}."
        )
        raise
    return GroupSubmission(
        group_id=group.id,
        collector=Collector(pool, group.id),
        job_ids=submission.job_ids,
        failures=submission.failures,
        home=home_name,
        _pool=pool,
        _allow_pickle=work.allow_pickle,
    )


def _home(
    pool: Pool, states: Sequence[ComputeJobState], *, home: str | None, known: GroupView | None, required: bool
) -> tuple[str | None, str | None]:
    """The ID and the name of the home."""
    if known is not None:
        return known.home.node_id, known.home.node_name
    node = find_home(pool, home, named=[state.home_host_name for state in states], required=required)
    return (None, None) if node is None else (node.id, node.name)


def _warn_if_only_home(
    pool: Pool, states: Sequence[ComputeJobState], *, home_id: str | None, home_name: str | None
) -> None:
    """A common mistake when trying this out on a single machine."""
    if home_id is None or any(state.allow_home_compute for state in states):
        return
    if [node.id for node in pool.nodes.list(limit=2)] == [home_id]:
        warnings.warn(
            f"{home_name} is the home and the only host: the jobs wait until another host joins."
            " States with allow_home_compute=True also run on the home host.",
            stacklevel=3,
        )


class _Submission:
    """Registers the keys of one call, then submits its jobs."""

    def __init__(self, pool: Pool, work: Submitter, sender: Sender, *, options: JobOptions, count: int) -> None:
        self._pool, self._work, self._sender = pool, work, sender
        self._options = options
        self.job_ids: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self._reported: set[str] = set()  #: keys reported without a job
        self._terms = dict(work.terms)
        self._budget_each = share(self._terms.pop("budget", None), count)

    def run(
        self,
        group_id: str,
        states: Sequence[ComputeJobState],
        texts: Mapping[str, str],
        *,
        home_id: str | None,
        fresh: bool,
    ) -> None:
        self._collector = Collector(self._pool, group_id)
        self._collector.register_jobs(list(texts))
        if not fresh:
            self._load_known()
        for options, alike in _by_options(states, self._options, home=home_id):
            missing = [state.job_key for state in alike if not self._is_known(state.job_key)]
            if missing:
                self._submit(options, {key: texts[key] for key in missing})

    def _submit(self, options: JobOptions, texts: Mapping[str, str]) -> None:
        try:
            spec = self._sender.spec(options, inputs=self._work.inputs)
        except BadRequest as error:
            self._fail(texts, error)
            return
        items = (self._sender.item(text, key=key) for key, text in texts.items())
        for batch in batches(
            items, lambda item: len(item.payload or ""), count_max=ITEMS_MAX, size_max=BATCH_BYTES_MAX
        ):
            self._send(spec, batch)

    def _send(self, spec: JobSpec, batch: Sequence[Item]) -> None:
        """Permanent errors fail the keys; temporary ones (quotas, credits, storage, the hub) leave them open."""
        try:
            self._post(spec, batch)
        except Conflict:
            # Another process submits the same group, and has submitted some of these.
            self._load_known()
            rest = [item for item in batch if not self._is_known(item.key or "")]
            if len(rest) == len(batch):
                raise
            if rest:
                self._send(spec, rest)
        except (BadRequest, TooLarge) as error:
            if error.field in _ACCOUNT_FIELDS:
                raise
            self._fail([item.key or "" for item in batch], error)

    def _post(self, spec: JobSpec, batch: Sequence[Item]) -> None:
        terms: dict[str, Any] = dict(self._terms)
        if self._budget_each is not None:
            terms["budget"] = self._budget_each * len(batch)
        reply = self._pool.jobs.submit(spec, items=batch, group_id=self._collector.group_id, **terms)
        self.job_ids |= {item.key or "": job_id for item, job_id in zip(batch, reply.job_ids, strict=True)}

    def _fail(self, keys: Iterable[str], error: ComputePoolError) -> None:
        """Report to the collector that these keys will have no job, so that it does not wait for them."""
        failed = dict.fromkeys(keys, error.detail)
        self._collector.job_failures(failed)
        self.failures |= failed
        self._reported |= failed.keys()

    def _is_known(self, key: str) -> bool:
        return key in self.job_ids or key in self._reported

    def _load_known(self) -> None:
        """Load the jobs and reports that the group already has from an earlier call or another process."""
        for item in self._collector.items():
            if item.key is None:
                continue
            if item.job_id is not None:
                self.job_ids[item.key] = item.job_id
            elif item.state != "expected":
                self._reported.add(item.key)
                if item.state == "failed":
                    self.failures[item.key] = item.error or item.sentence


def _assign_keys(job_class: JobClass, states: list[ComputeJobState]) -> list[ComputeJobState]:
    """Copies of the states. Missing keys are made from the position, so that the same call makes the same keys."""
    if not states:
        raise BadRequest("states: the list is empty.")
    job_classes.checked_class(job_class)
    for state in states:
        job_classes.check_state(job_class, state)
    taken = Counter(state.job_key for state in states if state.job_key)
    if twice := sorted(key for key, count in taken.items() if count > 1):
        shown = ", ".join(repr(key) for key in twice[:_NAMES_SHOWN])
        raise BadRequest(f"Two states have the same job_key: {shown}. A key must be unique within a group.")
    width = len(str(len(states)))
    keyed = []
    for number, state in enumerate(states, start=1):
        own = copy.copy(state)
        if not own.job_key:
            key = f"job-{number:0{width}}"
            while key in taken:
                key += "-more"
            taken[key] = 1
            object.__setattr__(own, "job_key", key)
        keyed.append(own)
    return keyed


def _by_options(
    states: Sequence[ComputeJobState], options: JobOptions, *, home: str | None
) -> list[tuple[JobOptions, list[ComputeJobState]]]:
    """The states grouped by their options: each group shares a spec."""
    found: dict[str, tuple[JobOptions, list[ComputeJobState]]] = {}
    for state in states:
        merged = job_classes.with_state(options, state, home=home)
        added = {option: value for option, value in merged.items() if options.get(option) is not value}
        found.setdefault(repr(sorted(added.items())), (merged, []))[1].append(state)
    return list(found.values())


submit_compute_job_group.__module__ = "computepool"  # inside a job, this name is the function in nested.py
