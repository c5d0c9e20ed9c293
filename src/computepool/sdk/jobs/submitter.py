"""Submitter: submits work with a fixed set of options. `pool.options(vram=16)` returns one; `pool.submit` uses one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence, Sized
from concurrent.futures import Future
from dataclasses import replace
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from computepool.core.errors import BadRequest
from computepool.core.jobs.lifecycle import JobKind
from computepool.protocol.jobs.jobs import BUNDLED_MAX, PAYLOAD_MAX, SOURCE_MAX, InputFile, JobSpec, Needs, spec_digest
from computepool.protocol.jobs.scripts import Script
from computepool.sdk.client.config import readable_file
from computepool.sdk.client.resource import validate
from computepool.sdk.code import capabilities, dependencies, functions
from computepool.sdk.code.dependencies import NOTHING, Dependencies
from computepool.sdk.code.functions import PYTHON, Pickled
from computepool.sdk.jobs import options
from computepool.sdk.jobs.options import JobOptions, PathLike

if TYPE_CHECKING:
    from computepool.protocol.money.credits import QuoteView
    from computepool.sdk.classes.compute_job import ComputeJobState
    from computepool.sdk.classes.job_classes import JobClass
    from computepool.sdk.client.session import GroupSession, Submission
    from computepool.sdk.jobs.bundles import Sizer, Task
    from computepool.sdk.jobs.executor import PoolExecutor
    from computepool.sdk.jobs.futures import JobFuture
    from computepool.sdk.jobs.mapping import MapRun
    from computepool.sdk.jobs.outcome import JobOutcome
    from computepool.sdk.pool import Pool

SLICES_MAX = 1_000
FUNCTIONS_MAX = 128
_EMPTY_ITEM = "{}"
#: A function, a script's path, or a command with its arguments.
Work = Callable[..., Any] | PathLike | Sequence[object]


class Submitter:
    """Submits jobs that share the same options. Cheap to create, and thread-safe."""

    def __init__(self, pool: Pool, given: JobOptions) -> None:
        options.check_known(given)
        self._pool = pool
        self._given = given
        self._functions: dict[tuple[bytes, Dependencies, int | None], Submission] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> JobFuture:
        """Run `fn(*args, **kwargs)` on a node. All keyword arguments go to the function."""
        if capabilities.is_job_class(fn):
            return self.submit_job(fn, *args, **kwargs)
        return self._session.submit(*self.call(fn, args, kwargs))

    def submit_job(self, job_class: JobClass, state: ComputeJobState) -> JobFuture:
        """Run one job of a job class, on a node that its state allows. The future's result is a JobReport."""
        from computepool.sdk.classes import job_classes

        sender = job_classes.Sender(self._pool, job_class, [state])
        spec = sender.spec(job_classes.with_state(self._given, state, home=state.home_host_name), inputs=self.inputs)
        key = state.job_key or None if "group" in self._given else None  # the shared session has no keys
        item = sender.item(job_classes.state_text(state), key=key)
        submission = self._submission(spec)
        return self._session.submit(submission, item.model_dump_json(exclude_defaults=True))

    def map(
        self,
        fn: Callable[..., Any],
        /,
        *iterables: Iterable[Any],
        progress: bool | None = None,
        ordered: bool = True,
        return_exceptions: bool = False,
        in_flight_max: int | None = None,
        chunksize: int | None = None,
        session: GroupSession | None = None,
    ) -> MapRun:
        """Iterate over the results of `fn`. Reads items only as needed.

        `chunksize`: items per job; by default as many as run for about a fifth of a second together.
        `session`: a session to share; by default the map has its own.
        """
        from computepool.sdk.jobs.mapping import MapRun

        total = min((len(items) for items in iterables if isinstance(items, Sized)), default=None)
        self.function(fn, jobs=total)  # raises errors before an item is read
        tasks = (self._task(index, args) for index, args in enumerate(zip(*iterables, strict=False)))
        first = list(islice(tasks, 1))
        submission = self.function(fn, jobs=total, arguments=first[0].data if first else b"")
        owned = session is None and "group" not in self._given
        if session is None:
            session = self._own_session("map", name=self._given.get("name") or _name(fn))
        return MapRun(
            session,
            submission,
            chain(first, tasks),
            total=total,
            sizer=self._sizer(fn, chunksize),
            owned=owned,
            progress=progress,
            ordered=ordered,
            return_exceptions=return_exceptions,
            in_flight_max=in_flight_max,
        )

    @overload
    def run(self, path: PathLike, args: Sequence[object] = (), *, wait: Literal[True] = True) -> JobOutcome: ...
    @overload
    def run(self, path: PathLike, args: Sequence[object] = (), *, wait: Literal[False]) -> JobFuture: ...
    def run(self, path: PathLike, args: Sequence[object] = (), *, wait: bool = True) -> JobOutcome | JobFuture:
        """Run a script, and wait for it; raises JobFailed if it fails. With wait=False, returns its future."""
        return self.start(self.script(path, args), wait=wait)

    @overload
    def command(self, argv: Sequence[object], *, wait: Literal[True] = True) -> JobOutcome: ...
    @overload
    def command(self, argv: Sequence[object], *, wait: Literal[False]) -> JobFuture: ...
    def command(self, argv: Sequence[object], *, wait: bool = True) -> JobOutcome | JobFuture:
        """Run a program with arguments, without a shell."""
        return self.start(self.program(argv), wait=wait)

    def slices(self, path: PathLike, count: int, *, args: Sequence[object] = ()) -> list[JobFuture]:
        """Run the same script `count` times as one group; COMPUTEPOOL_SLICE is the number of each run."""
        if not 1 <= count <= SLICES_MAX:
            raise BadRequest(f"slices: must be between 1 and {SLICES_MAX}, not {count}.")
        spec = self.script(path, args)
        session = self._own_session("slices", name=spec.name)
        submission = self._submission(spec, jobs=count)
        return session.submit_batch(submission, [_EMPTY_ITEM] * count)

    def executor(self) -> PoolExecutor:
        """A concurrent.futures.Executor whose workers are the pool's nodes."""
        from computepool.sdk.jobs.executor import PoolExecutor

        return PoolExecutor(self, self._own_session("session", name="executor"))

    def quote(self, what: Work | None = None, args: Sequence[object] = (), *, items: int = 1) -> QuoteView:
        """Estimate the cost and finish time of a function, script or command, or of any job with these requirements.

        Uploads and submits nothing.
        """
        needed = self.dependencies(what)
        given: JobOptions = {**self._given, "autodetect": False}
        given.pop("inputs", None)
        if needed.packages:
            given["dependencies"] = list(needed.packages)
        exact = "inputs" not in self._given and not needed.files
        return Submitter(self._pool, given)._ask_quote(what, args, items=items, exact=exact)

    def dependencies(self, what: Work | None) -> Dependencies:
        """The modules that are sent with a function or a script, and the packages that nodes install."""
        if isinstance(what, str | os.PathLike):
            file, source = _read_script(what)
            return self._script_needs(file, source)
        return self._function_needs(self._pool.functions.pickle(what)) if callable(what) else NOTHING

    def _ask_quote(self, what: Work | None, args: Sequence[object], *, items: int, exact: bool) -> QuoteView:
        """`exact`: the spec is the one that would be submitted, so the hub can find its history by the digest."""
        from computepool.protocol.money.credits import QuoteRequest, QuoteView

        spec = self._quote_spec(what, args)
        terms = options.terms(self._given)
        fields: dict[str, Any] = {"needs": self.needs, "name": self._given.get("name"), "items": items}
        fields |= options.rules(self._given)
        fields |= {word: terms[word] for word in ("max_price", "budget", "verify", "confidence") if word in terms}
        if spec is not None:
            fields |= {"needs": spec.needs, "kind": spec.kind, "timeout_s": spec.timeout_s, "name": spec.name}
            fields["dependencies"] = spec.dependencies
            fields["spec_digest"] = spec_digest(spec.body()) if exact else None
            fields["secret_owners"] = None if spec.secret_readers is None else sorted(spec.secret_readers)
        request = validate(QuoteRequest, **fields)
        return self._pool.transport.post("/quotes", QuoteView, body=request)

    def _quote_spec(self, what: Work | None, args: Sequence[object]) -> JobSpec | None:
        if what is None:
            return None
        if isinstance(what, str | os.PathLike):
            return self.script(what, args)
        if not callable(what):
            return self.program(what)
        pickled = self._pool.functions.pickle(what)
        if len(pickled) > SOURCE_MAX:  # it would have to be uploaded; the hub finds its history by name
            return self._spec(_name(what), kind=JobKind.FUNCTION, function="AA==", python=PYTHON)
        return self._function_spec(what, pickled, NOTHING)

    # ------------------------------------------------------------ steps, also used by the CLI
    def start(self, spec: JobSpec, *, wait: bool) -> JobOutcome | JobFuture:
        future = self._session.submit(self._submission(spec), _EMPTY_ITEM)
        if not wait:
            return future
        outcome: JobOutcome = future.result()
        return outcome

    def script(self, path: PathLike, args: Sequence[object] = ()) -> JobSpec:
        file, source = _read_script(path)
        words = _words(args)
        declared = capabilities.of_script(source)
        needed = self._script_needs(file, source)
        return self._spec(file.name, declared, needed, kind=JobKind.SCRIPT, source=source, argv=words)

    def program(self, argv: Sequence[object]) -> JobSpec:
        words = _words(argv)
        if isinstance(argv, str) or not words or not words[0]:
            raise BadRequest(f"command: pass the program and its arguments as a list, not {argv!r}.")
        return self._spec(words[0].rpartition("/")[2] or words[0], kind=JobKind.COMMAND, argv=words)

    def spec_of(self, what: Work, args: Sequence[object] = ()) -> JobSpec:
        """The spec of a script with arguments, a command, or a function that is called without arguments."""
        if isinstance(what, str | os.PathLike):
            return self.script(what, args)
        if not callable(what):
            return self.program(what)
        pickled = self._pool.functions.pickle(what)
        return self._function_spec(what, pickled, self._function_needs(pickled))

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Submission, str]:
        """One call of a function, and the JSON of its Item."""
        data = functions.pickle_arguments(args, kwargs)
        submission = self.function(fn, arguments=data)
        return submission.taking_results() if functions.uses(data) else submission, self.item(data)

    def function(self, fn: Callable[..., Any], *, jobs: int | None = 1, arguments: bytes = b"") -> Submission:
        """`jobs`: how many calls share the budget, if known. `arguments`: those of one of the calls."""
        if capabilities.is_job_class(fn):
            raise BadRequest(f"{fn.__name__} is a job class; pass it with its states to submit_compute_job_group.")
        pickled = self._pool.functions.pickle(fn)
        needed = self._function_needs(pickled, arguments)
        key = (pickled, needed, jobs if "budget" in self._given else 1)
        known = self._functions.get(key)
        if known is None:
            known = self._submission(self._function_spec(fn, pickled, needed), jobs=jobs)
            if len(self._functions) >= FUNCTIONS_MAX:
                self._functions.clear()
            self._functions[key] = known
        return known

    def item(self, data: bytes, *, bundled: int = 1) -> str:
        """The JSON of one Item with these pickled arguments, formatted by hand for speed; base64 needs no escaping."""
        counted = "" if bundled == 1 else f',"bundled":{bundled}'
        if used := functions.uses(data):
            counted += f',"uses":{json.dumps(used)}'
        sent = self._pool.artifacts.inline_or_put(data, "payload", name="arguments.pickle", most=PAYLOAD_MAX)
        [(field, text)] = sent.items()
        return f'{{"{field}":"{text}"{counted}}}'

    def _task(self, index: int, args: tuple[Any, ...]) -> Task:
        from computepool.sdk.jobs.bundles import Task

        data = functions.pickle_arguments(args, {})
        used = functions.uses(data)
        if len(data) <= PAYLOAD_MAX:
            return Task(index, data, uses=used)
        stored = self._pool.artifacts.put_bytes(data, name="arguments.pickle")
        return Task(index, b"", artifact=stored.digest, uses=used)

    def _sizer(self, fn: Callable[..., Any], chunksize: int | None) -> Sizer:
        from computepool.sdk.jobs.bundles import Sizer

        if chunksize is not None and not 1 <= chunksize <= BUNDLED_MAX:
            raise BadRequest(f"chunksize: must be between 1 and {BUNDLED_MAX}, not {chunksize}.")
        if callable(self._given.get("compare")):
            chunksize = 1  # the function compares the results of one item
        declared = {**capabilities.of_function(fn), **self._given}
        if declared.get("checkpoints") or declared.get("moves"):
            chunksize = 1  # an item must not find the checkpoint of another one
        return Sizer(fixed=chunksize, timeout_s=options.rules(self._given).get("timeout_s", 3600.0))

    @cached_property
    def inputs(self) -> tuple[InputFile, ...]:
        """Uploaded once for all jobs."""
        given = self._given.get("inputs")
        return () if given is None else self._pool.artifacts.inputs(given)

    @property
    def needs(self) -> Needs:
        """The requirements as sent to the hub; `pool.jobs.preview` shows which nodes satisfy them."""
        return options.needs(self._given)

    @cached_property
    def terms(self) -> dict[str, Any]:
        """The fields of a SubmitRequest other than spec, items and group. A `compare` function is pickled once."""
        compare = self._given.get("compare")
        if compare is None or isinstance(compare, str):
            return options.terms(self._given)
        sent = self._send_function(self._pool.functions.pickle(compare))
        return {**options.terms(self._given), "compare_function": {**sent, "python": PYTHON}}

    @property
    def allow_pickle(self) -> bool:
        return self._given.get("allow_pickle", False)

    # ------------------------------------------------------------ internal
    @property
    def _session(self) -> GroupSession:
        return self._pool.session(self._given.get("group"))

    def _own_session(self, kind: str, *, name: str) -> GroupSession:
        """The session of a new group, unless the options name a group."""
        if "group" in self._given:
            return self._session
        from computepool.protocol.jobs.groups import GroupRequest

        return self._pool.new_session(validate(GroupRequest, name=name, kind=kind))

    def _function_needs(self, *pickles: bytes) -> Dependencies:
        found = [data for data in pickles if isinstance(data, Pickled)]
        if not found or not self._given.get("autodetect", True):
            return NOTHING
        imported = [name for data in found for name in data.imports]
        return self._not_listed(dependencies.of_code(imported, [name for data in found for name in data.modules]))

    def _script_needs(self, file: Path, source: str) -> Dependencies:
        if not self._given.get("autodetect", True):
            return NOTHING
        script = Script(source)
        try:
            listed = bool(script.dependencies)
        except ValueError:  # check_spec reports it
            return NOTHING
        found = dependencies.of_script(source, file.parent) if script.is_python else NOTHING
        return replace(found, packages=()) if listed else self._not_listed(found)

    def _not_listed(self, found: Dependencies) -> Dependencies:
        """Explicit dependencies are complete: no packages are added to them."""
        return replace(found, packages=()) if "dependencies" in self._given else found

    def _function_spec(self, fn: Callable[..., Any], pickled: bytes, needed: Dependencies) -> JobSpec:
        sent = self._send_function(pickled)
        declared = capabilities.of_function(fn)
        return self._spec(_name(fn), declared, needed, kind=JobKind.FUNCTION, python=PYTHON, **sent)

    def _send_function(self, pickled: bytes) -> dict[str, str]:
        return self._pool.artifacts.inline_or_put(pickled, "function", name="function.pickle", most=SOURCE_MAX)

    def _spec(
        self, name: str, declared: capabilities.Declared | None = None, needed: Dependencies = NOTHING, **what: Any
    ) -> JobSpec:
        given: JobOptions = {"name": name, **(declared or {}), **self._given}
        if needed.packages:
            given["dependencies"] = list(needed.packages)
        return options.spec(given, inputs=self._with_modules(needed), **what)

    def _with_modules(self, needed: Dependencies) -> tuple[InputFile, ...]:
        """The inputs and the modules; an explicit input replaces a module of the same name."""
        given = {file.name for file in self.inputs}
        files = {file.name: file.path for file in needed.files if file.name not in given}
        return self.inputs + (self._pool.artifacts.inputs(files) if files else ())

    def _submission(self, spec: JobSpec, *, jobs: int | None = 1) -> Submission:
        from computepool.sdk.client.session import Submission
        from computepool.sdk.jobs.outcome import ResultReader

        terms = dict(self.terms)
        each = share(terms.pop("budget", None), jobs)
        retries = terms.pop("retries", 0)
        extra = "".join(f",{json.dumps(name)}:{json.dumps(value)}" for name, value in terms.items())
        return Submission(
            spec=spec.body(),
            terms=extra,
            read=ResultReader(self._pool, spec.kind, self.allow_pickle),
            budget_each=each,
            retries=retries,
            allow_pickle=self.allow_pickle,
        )


def _read_script(path: PathLike) -> tuple[Path, str]:
    file = readable_file(path, what="script")
    try:
        source = file.read_bytes().decode()
    except UnicodeDecodeError:
        raise BadRequest(f"script: {file} is not a text file; send a program with inputs= and command().") from None
    if len(source) > SOURCE_MAX:
        raise BadRequest(f"script: {file} is longer than {SOURCE_MAX} characters; send it with inputs=.")
    if not source.strip():
        raise BadRequest(f"script: {file} is empty.")
    return file, source


def _words(args: Iterable[object]) -> list[str]:
    if any(isinstance(arg, Future) for arg in args):
        raise BadRequest(
            "args: a future can be an argument of a function only; start a program after it with after=[future]."
        )
    return [str(arg) for arg in args]


def share(budget: int | None, jobs: int | None) -> int | None:
    """The part of the budget that each job carries, since the jobs are sent in several batches."""
    if budget is None:
        return None
    if jobs is None:
        raise BadRequest("budget: it is shared among the items, so pass a list or another sequence of known length.")
    each = budget // max(1, jobs)
    if not each:
        raise BadRequest(f"budget: too small to share among {jobs} jobs.")
    return each


def _name(fn: Callable[..., Any]) -> str:
    inner: Any = fn
    while not hasattr(inner, "__qualname__") and hasattr(inner, "func"):
        inner = inner.func  # functools.partial
    name: str = getattr(inner, "__qualname__", type(inner).__qualname__)
    return name.rpartition("<locals>.")[2][:200] or "function"
