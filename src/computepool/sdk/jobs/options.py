"""Options of a job (vram=16, timeout="2h" …), turned into the wire's spec and terms."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from pydantic import BaseModel, ValidationError

from computepool.core.jobs.lifecycle import JobKind
from computepool.protocol.jobs.jobs import InputFile, JobSpec, Needs, SubmitRequest
from computepool.protocol.jobs.spec_rules import check_spec
from computepool.sdk.client.amounts import Credits, microcredits
from computepool.sdk.client.sizes import needs_of, seconds, words
from computepool.sdk.errors import BadRequest
from computepool.sdk.files.sealing import recipient

if TYPE_CHECKING:
    from computepool.sdk.jobs.futures import JobFuture

Model = TypeVar("Model", bound=BaseModel)
Size = float | str
Words = str | Sequence[str]
PathLike = str | os.PathLike[str]
#: Files for the job: paths, or a mapping of the names they shall have there, or what `artifacts.put` gave.
Inputs = Sequence[PathLike | InputFile] | Mapping[str, PathLike | InputFile]


class JobOptions(TypedDict, total=False):
    """Everything is optional. Sizes without a unit are in GB, durations without one in seconds."""

    name: str
    cores: float
    ram: Size
    disk: Size
    gpus: int
    vram: Size  #: per GPU; implies one GPU
    tier: Words  #: any of these
    region: Words  #: any of these
    tags: Words  #: all of these
    prefer_tags: Words
    exclude_tags: Words
    exclude_hosts: Words
    host: str  #: this node and no other: its id, or a name; your own nodes come first
    properties: Mapping[str, str]
    mesh_version: str
    isolation: str
    priority: int
    timeout: float | str
    ttl: float | str  #: how long it may wait in the queue
    retries: int
    impossible: str  #: what becomes of it where no node can run it: queue (the default) or refuse
    inputs: Inputs
    env: Mapping[str, str]
    dependencies: (
        Words  #: packages to install; by default those that the code imports, in the versions installed here
    )
    autodetect: bool  #: False: send no modules of your own, and require no packages, that the code imports
    net: Words  #: hosts it may reach, as "host:port" or "*.domain:port"; none by default
    after: Sequence[str | JobFuture]  #: jobs that must succeed first
    group: str  #: a group of yours to put it in, by id or name; a name that is new makes one
    labels: Words
    type: str  #: ml, gaming or other: a label with requirements of its own, which explicit ones override
    max_price: Credits  #: credits per hour that one job may cost; 0: only your own nodes
    budget: Credits  #: credits for all jobs of one call together; each stops when its share is spent
    verify: str  #: none, adaptive or quorum:K: on how many owners' nodes results must agree
    confidence: float  #: instead: how sure to be of a result, for example 0.999
    compare: str | Callable[[Any, Any], bool]  #: "exact", "tolerance:1e-6", or a function of two results
    seal: bool | str  #: encrypt what comes back to your key (docs/sealing.md), or to this public key
    allow_pickle: bool  #: accept results that need pickle: only from nodes you trust
    checkpoints: bool  #: it saves where it is (docs/checkpoints.md); by default if its code names computepool.checkpoint
    moves: bool  #: it moves to hosts that it names; default: if its code uses computepool.dispatch_to
    children: int  #: jobs that it may submit while it runs (docs/children.md), with those that they submit; 0 by default
    children_budget: (
        Credits  #: that they may cost together; by default what is set aside for it, times children
    )


_KNOWN = frozenset(JobOptions.__annotations__)
_NO_START = "nodes start and stop workers as needed. Put set-up code into the function, or into a module that it imports."
#: What the standard library's executors take, and why the pool's does not.
_OF_EXECUTORS = {
    "initializer": _NO_START,
    "initargs": _NO_START,
    "mp_context": "functions run on other machines.",
    "max_workers": "as many calls run as nodes are free; pool.map(..., in_flight_max=N) limits how many are sent at once.",
}


def check_known(options: Mapping[str, Any]) -> None:
    """An unknown word is refused at once: a requirement that is silently dropped would be worse."""
    for word in options:
        if word in _OF_EXECUTORS:
            raise TypeError(f"{word!r} is not supported: {_OF_EXECUTORS[word]}")
        if word not in _KNOWN:
            close = difflib.get_close_matches(word, _KNOWN, n=1)
            meant = f"; did you mean {close[0]!r}?" if close else "."
            raise TypeError(
                f"{word!r} is not a job option{meant} Pass keyword arguments of the function as kwargs={{...}} to submit,"
                " or with functools.partial(fn, ...) to map."
            )


#: A job type is a label with default requirements, and nothing else: no price, and no display or stream for `gaming`.
TYPES: dict[str, dict[str, Any]] = {
    "ml": {"gpus": 1, "vram": "8GB", "ram": "8GB"},
    "gaming": {"gpus": 1},
    "other": {},
}


def with_type_defaults(options: JobOptions) -> Mapping[str, Any]:
    """The options with what their type adds; what the person said stands."""
    kind = options.get("type")
    if kind is None:
        return options
    if kind not in TYPES:
        raise BadRequest(f"type: {kind!r} is not one of {', '.join(TYPES)}.", field="type")
    defaults = dict(TYPES[kind])
    if options.get("gpus") == 0:
        defaults.pop("vram", None)  # memory of a card would ask for a card again
    labels = [*words(options.get("labels", [])), kind]
    return {**defaults, **options, "labels": labels}


def needs(options: JobOptions, *, python: str | None = None) -> Needs:
    plain = with_type_defaults(options)
    given = needs_of(plain, _SAME_IN_NEEDS)
    if "properties" in plain:
        given["properties"] = dict(plain["properties"])
    return validate(Needs, python=python, **given)


_SAME_IN_NEEDS = ("cores", "gpus", "host", "mesh_version", "isolation")


_SAME_IN_SPEC = ("name", "allow_pickle", "checkpoints", "moves", "children")


def spec(
    options: JobOptions, *, inputs: Sequence[InputFile], python: str | None = None, **what: Any
) -> JobSpec:
    """`what` is the work itself: kind, source, argv, function …"""
    plain = with_type_defaults(options)
    fields: dict[str, Any] = {"needs": needs(options, python=python), "inputs": list(inputs), **what}
    fields |= {word: plain[word] for word in _SAME_IN_SPEC if word in plain}
    if (sealed_to := recipient(plain.get("seal"))) is not None:
        fields["seal_to"] = sealed_to
    if "children_budget" in plain:
        fields["children_budget"] = microcredits(plain["children_budget"], what="children_budget")
    if "dependencies" in plain:
        fields["dependencies"] = words(plain["dependencies"])
    fields |= rules(options)
    if "env" in plain:
        fields["env"] = dict(plain["env"])
    made = validate(JobSpec, **fields)
    try:
        return check_spec(made)  # before anything is sent
    except ValueError as error:
        raise BadRequest(f"{error}.") from error


def rules(options: JobOptions) -> dict[str, Any]:
    """What owners may have rules about, beside the needs."""
    plain = with_type_defaults(options)
    fields: dict[str, Any] = {word: words(plain[word]) for word in ("labels", "net") if word in plain}
    if "timeout" in plain:
        fields["timeout_s"] = seconds(plain["timeout"], what="timeout")
    return fields


def terms(options: JobOptions) -> dict[str, Any]:
    """The fields of a SubmitRequest beside spec, items and group."""
    plain: Mapping[str, Any] = options
    same = ("priority", "retries", "verify", "confidence", "impossible")
    fields = {word: plain[word] for word in same if word in plain}
    if not {"verify", "confidence"} & fields.keys() and recipient(plain.get("seal")) is not None:
        fields["verify"] = "none"  # what is sealed cannot be checked; a quote should know it
    if isinstance(plain.get("compare"), str):
        fields["compare"] = plain["compare"]  # a function is pickled by the submitter
    if "ttl" in plain:
        fields["ttl_s"] = seconds(plain["ttl"], what="ttl")
    fields |= {
        word: microcredits(plain[word], what=word) for word in ("max_price", "budget") if word in plain
    }
    if "after" in plain:
        fields["after"] = [job if isinstance(job, str) else job.job_id for job in plain["after"]]
    validate(SubmitRequest, spec=JobSpec(kind=JobKind.COMMAND, name="any", argv=["true"]), **fields)
    return fields


def validate(model: type[Model], **fields: Any) -> Model:
    """The model, or a BadRequest that names the field as the person wrote it."""
    try:
        return model(**{name: value for name, value in fields.items() if value is not None})
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        if not field:  # it is about several of them, and names them
            raise BadRequest(f"{message[:1].upper()}{message[1:]}.") from error
        raise BadRequest(
            f"{_AS_WRITTEN.get(field) or field.removesuffix('_s')}: {message}", field=field
        ) from error


#: What a field of the wire is called as a parameter; "name_s" is "name" otherwise.
_AS_WRITTEN = {
    "ram_mb": "ram",
    "disk_mb": "disk",
    "vram_mb": "vram",
    "duration_s": "duration",
    "lifetime_s": "lifetime",
}


def readable_file(path: PathLike, *, what: str = "file") -> Path:
    """The path, after a look at it: a wrong name is answered by a sentence, before anything is sent."""
    file = Path(path).expanduser()
    try:
        if file.is_dir():
            raise BadRequest(f"{what}: {file} is a folder, not a file.")
        with file.open("rb"):
            return file
    except OSError as error:
        raise BadRequest(f"{what}: cannot read {file}: {error.strerror or error}.") from error
