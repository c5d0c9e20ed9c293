"""`submit_compute_job_group`: many jobs of one class, and a collector that knows of them before the first one runs.

Whatever happens to this process on the way, what is at the hub can be continued: the same call with `group_id=` registers
and submits what is missing, and nothing twice, because a key has one job.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Unpack

from computepool.core.jobs.lifecycle import JobState
from computepool.protocol.jobs.groups import GroupView
from computepool.protocol.jobs.jobs import ITEMS_MAX, Item, JobSpec
from computepool.sdk.classes import job_classes
from computepool.sdk.classes.collector import Collector
from computepool.sdk.classes.compute_job import ComputeJobState
from computepool.sdk.classes.homes import find_home, own_node
from computepool.sdk.classes.job_classes import JobClass, JobReport, Sender
from computepool.sdk.classes.summary import Summary
from computepool.sdk.client.session import BATCH_BYTES_MAX
from computepool.sdk.client.sizes import batches
from computepool.sdk.errors import BadRequest, ComputePoolError, Conflict, TooLarge
from computepool.sdk.jobs.options import JobOptions
from computepool.sdk.jobs.submitter import Submitter

if TYPE_CHECKING:
    from computepool.sdk.pool import Pool

_NAMES_SHOWN = 5
#: What is refused because of these depends on what else the account does today.
_OF_THE_ACCOUNT = ("max_price", "budget")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSubmission:
    """What was submitted. The group's id is all that is needed to find everything again, from anywhere."""

    group_id: str
    collector: Collector
    job_ids: Mapping[str, str]  #: by key
    failures: Mapping[str, str]  #: keys for which no job could be made, and why; the collector has them, too
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
            if result.state is JobState.SUCCEEDED and result.job_id:  # a key reported from outside has none
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
    """One job per state. Results wait at the hub, and go to the `home` host when all are there.

    `name` is the group's. `group_id`: continue a group whose submitter was interrupted; pass the same states.

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
    sender.spec(options)  # what is wrong for all of them is said at once, and not once for each
    known = None if group_id is None else pool.groups.get(group_id)
    place = _home(pool, keyed, home=home, known=known, required=return_home_when_complete)
    texts = {state.job_key: job_classes.state_text(state) for state in _with_home(keyed, place)}
    task = _PendingJob(pool, work, sender, options=options, count=len(keyed))
    group = known or pool.groups.create(name, home=place.id, return_home=return_home_when_complete)
    _warn_if_home_is_all(pool, keyed, place)
    try:
        task.run(group.id, keyed, texts, home_id=place.id, fresh=known is None)
    except BaseException as error:
        error.add_note(
            f"Group {group.id} is submitted in part. Go on with the same states and group_id={group.id!r}."
        )
        raise
    return GroupSubmission(
        group_id=group.id,
        collector=Collector(pool, group.id),
        job_ids=task.job_ids,
        failures=task.failures,
        home=place.name,
        _pool=pool,
        _allow_pickle=work.allow_pickle,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Home:
    id: str | None = None
    name: str | None = None


def _home(
    pool: Pool,
    states: Sequence[ComputeJobState],
    *,
    home: str | None,
    known: GroupView | None,
    required: bool,
) -> _Home:
    if known is not None:
        return _Home(id=known.home.node_id, name=known.home.node_name)
    named = [state.home_host_name for state in states]
    node = own_node(pool, home) if home else find_home(pool, named, required=required)
    return _Home() if node is None else _Home(id=node.id, name=node.name)


def _with_home(states: Sequence[ComputeJobState], home: _Home) -> Sequence[ComputeJobState]:
    """Jobs learn where home is, so that they can go there."""
    for state in states:
        if home.name and not state.home_host_name:
            object.__setattr__(state, "home_host_name", home.name)
    return states


def _warn_if_home_is_all(pool: Pool, states: Sequence[ComputeJobState], home: _Home) -> None:
    """The first thing that happens to somebody who tries it with one machine."""
    if home.id is None or any(state.allow_home_compute for state in states):
        return
    if [node.id for node in pool.nodes.list(limit=2)] == [home.id]:
        warnings.warn(
            f"{home.name} is the home and the only host: the jobs wait until another host joins."
            " States with allow_home_compute=True also run on the home host.",
            stacklevel=3,
        )


class _PendingJob:
    """One call: the collector first, then the keys, then the jobs."""

    def __init__(
        self, pool: Pool, work: Submitter, sender: Sender, *, options: JobOptions, count: int
    ) -> None:
        self._pool, self._work, self._sender = pool, work, sender
        self._options = options
        self.job_ids: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self._reported: set[str] = set()  #: from outside
        self._terms = dict(work.terms)
        budget = self._terms.pop("budget", None)
        self._budget_each = None if budget is None else budget // count
        if self._budget_each == 0:
            raise BadRequest(f"budget: too small to share among {count} jobs.")

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
            self._look()
        for wishes, alike in _alike(states, self._options, home=home_id):
            missing = [state.job_key for state in alike if not self._is_known(state.job_key)]
            if missing:
                self._submit(wishes, {key: texts[key] for key in missing})

    def _submit(self, wishes: JobOptions, texts: Mapping[str, str]) -> None:
        try:
            spec = self._sender.spec(wishes, inputs=self._work.inputs)
        except BadRequest as error:
            self._fail(texts, error)
            return
        items = (self._sender.item(text, key=key) for key, text in texts.items())
        for batch in batches(
            items, lambda item: len(item.payload or ""), count_max=ITEMS_MAX, size_max=BATCH_BYTES_MAX
        ):
            self._send(spec, batch)

    def _send(self, spec: JobSpec, batch: Sequence[Item]) -> None:
        """What can never be a job fails its keys; whatever passes (quotas, credits, room, the hub) leaves them open."""
        try:
            self._post(spec, batch)
        except Conflict:
            # Somebody else is submitting the same group: what they have sent is sent.
            self._look()
            rest = [item for item in batch if not self._is_known(item.key or "")]
            if len(rest) == len(batch):
                raise
            if rest:
                self._send(spec, rest)
        except (BadRequest, TooLarge) as error:
            if error.field in _OF_THE_ACCOUNT:
                raise
            self._fail([item.key or "" for item in batch], error)

    def _post(self, spec: JobSpec, batch: Sequence[Item]) -> None:
        terms: dict[str, Any] = dict(self._terms)
        if self._budget_each is not None:
            terms["budget"] = self._budget_each * len(batch)
        reply = self._pool.jobs.submit(spec, items=batch, group_id=self._collector.group_id, **terms)
        self.job_ids |= {item.key or "": job_id for item, job_id in zip(batch, reply.job_ids, strict=True)}

    def _fail(self, keys: Iterable[str], error: ComputePoolError) -> None:
        """Nobody will run these: the collector hears of it, so that it does not wait for them."""
        failed = dict.fromkeys(keys, error.detail)
        self._collector.job_failures(failed)
        self.failures |= failed
        self._reported |= failed.keys()

    def _is_known(self, key: str) -> bool:
        return key in self.job_ids or key in self._reported

    def _look(self) -> None:
        """What the group has already, of an earlier call or of another process."""
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
    """Copies, each with a key. Made from the position, so that the same call makes the same keys."""
    if not states:
        raise BadRequest("states: the list is empty.")
    job_classes.checked_class(job_class)
    taken: dict[str, int] = {}
    for state in states:
        job_classes.check_state(job_class, state)
        if state.job_key:
            taken[state.job_key] = taken.get(state.job_key, 0) + 1
    if twice := sorted(key for key, count in taken.items() if count > 1):
        shown = ", ".join(repr(key) for key in twice[:_NAMES_SHOWN])
        raise BadRequest(f"Two states have the same job_key: {shown}. A key must be unique within a group.")
    width = len(str(len(states)))
    keyed = []
    for number, state in enumerate(states, start=1):
        own = copy.copy(state)
        if not own.job_key:
            object.__setattr__(own, "job_key", _free(f"job-{number:0{width}}", taken))
        keyed.append(own)
    return keyed


def _free(key: str, taken: dict[str, int]) -> str:
    while key in taken:
        key += "-more"
    taken[key] = 1
    return key


def _alike(
    states: Sequence[ComputeJobState], options: JobOptions, *, home: str | None
) -> list[tuple[JobOptions, list[ComputeJobState]]]:
    """Those that ask for the same share a spec, and travel together."""
    found: dict[str, tuple[JobOptions, list[ComputeJobState]]] = {}
    for state in states:
        wishes = job_classes.wishes(state, options, home=home)
        added = {word: value for word, value in wishes.items() if options.get(word) is not value}
        found.setdefault(repr(sorted(added.items())), (wishes, []))[1].append(state)
    return list(found.values())


submit_compute_job_group.__module__ = "computepool"  # inside a job it is another one (nested.py)
