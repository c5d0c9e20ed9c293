"""Options of a job (vram=16, timeout="2h" …), and their conversion into the spec and terms of a request."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from pydantic import ValidationError

from computepool.core.errors import BadRequest
from computepool.core.jobs.lifecycle import JobKind
from computepool.protocol.jobs.jobs import InputFile, JobSpec, Needs, SubmitRequest
from computepool.protocol.jobs.spec_rules import check_spec
from computepool.protocol.volumes.volumes import VolumeMount
from computepool.sdk.client.amounts import Credits, microcredits
from computepool.sdk.client.resource import validate
from computepool.sdk.client.sizes import needs_of, seconds, words
from computepool.sdk.files.sealing import recipient

if TYPE_CHECKING:
    from computepool.sdk.jobs.futures import JobFuture

Size = float | str
Words = str | Sequence[str]
PathLike = str | os.PathLike[str]
#: Files for the job: paths or results of `artifacts.put`; in a mapping, by their names on the node.
Inputs = Sequence[PathLike | InputFile] | Mapping[str, PathLike | InputFile]


class JobOptions(TypedDict, total=False):
    """Everything is optional. Sizes without a unit are in GB, durations without one in seconds."""

    name: str
    cores: float
    ram: Size
    disk: Size
    gpus: int
    vram: Size  #: per GPU; implies one GPU
    compute_capability: str  #: the least of each GPU, such as "8.0"; implies one GPU, as the next two
    driver: str  #: condition on the NVIDIA driver, such as ">=550"
    cuda: str  #: condition on the newest CUDA that the driver runs, such as ">=12.4"
    tier: Words  #: any of these
    region: Words  #: any of these
    tags: Words  #: all of these
    prefer_tags: Words
    exclude_tags: Words
    exclude_hosts: Words
    host: str  #: only this node, by ID or name; your own nodes take precedence
    properties: Mapping[str, str]
    require: str  #: an expression: 'tag.ssd and (site == "lab-3" or not tag.laptop)'
    down: int  #: measured speed from the hub, in Mb/s
    up: int  #: the same to the hub
    prefer: str  #: cheapest, fastest, or balanced (the default)
    mesh_version: str
    isolation: str
    priority: int
    timeout: float | str
    ttl: float | str  #: maximum time in the queue
    retries: int
    impossible: str  #: what to do if no node can run it: queue (the default) or refuse
    inputs: Inputs
    env: Mapping[str, str]
    #: your secrets (docs/secrets.md): names, or `NAME=VARIABLE`, or a mapping of variables to names
    secrets: Words | Mapping[str, str]
    registry_secret: str  #: the secret with the login `USER:PASSWORD` for the registry of its image
    secret_owners: Words  #: accounts, besides your own, whose nodes may get them
    secrets_anywhere: bool  #: every node may get them
    dependencies: Words  #: packages to install; default: those that the code imports, in the versions installed here
    offered_only: bool  #: only on nodes whose owner offers an environment with these packages; nothing is installed
    autodetect: bool  #: False: neither send local modules that the code imports, nor require its packages
    image: str  #: container image to run in, such as "python:3.12", or one of `pool.images.push`
    net: Words  #: hosts that it may connect to, as "host:port" or "*.domain:port"; default: none
    after: Sequence[str | JobFuture]  #: jobs that must end first
    when: str  #: the condition on them: success (the default: all succeed), failure (one does not) or always
    group: str  #: put it into this group of yours, by ID or name; a new name creates a group
    #: named folders that outlive the job, as "data:/data" or, read-only, "data:/data:ro" (docs/volumes.md)
    volumes: Words
    labels: Words
    type: str  #: ml, gaming or other: a label with default requirements
    max_price: Credits  #: maximum credits per hour for one job; 0: only your own nodes
    budget: Credits  #: maximum credits for all jobs of one call; each job stops when its share is spent
    verify: str  #: none, adaptive, or quorum:K: the results of K owners' nodes must agree
    confidence: float  #: instead of verify: required confidence in the result, such as 0.999
    compare: str | Callable[[Any, Any], bool]  #: "exact", "tolerance:1e-6", or a function of two results
    seal: bool | str  #: encrypt results to your key (docs/sealing.md), or to this public key
    allow_pickle: bool  #: accept results that need pickle: only from nodes you trust
    #: it saves checkpoints (docs/checkpoints.md); default: if its code uses computepool.checkpoint
    checkpoints: bool
    moves: bool  #: it moves to hosts that it names; default: if its code uses computepool.dispatch_to
    #: how many jobs it may submit while it runs, including their own children (docs/children.md); default: 0
    children: int
    #: run it on this many nodes of one owner, or of its mesh, at once, with a rank on each (docs/gangs.md); default: 1
    nodes: int
    children_budget: Credits  #: maximum cost of these jobs; default: its own hold times children


_KNOWN = frozenset(JobOptions.__annotations__)
_NO_INITIALIZER = (
    "nodes start and stop workers as needed. Put set-up code into the function, or into a module that it imports."
)
#: Parameters of the standard library's executors, and why the pool's executor does not have them.
_EXECUTOR_PARAMETERS = {
    "initializer": _NO_INITIALIZER,
    "initargs": _NO_INITIALIZER,
    "mp_context": "functions run on other machines.",
    "max_workers": "as many calls run as nodes are free; pool.map(..., in_flight_max=N) limits how many are sent at once.",
}


def check_known(options: Mapping[str, Any]) -> None:
    """Raise TypeError for unknown options: a mistyped requirement must not be dropped silently."""
    for word in options:
        if word in _EXECUTOR_PARAMETERS:
            raise TypeError(f"{word!r} is not supported: {_EXECUTOR_PARAMETERS[word]}")
        if word not in _KNOWN:
            close = difflib.get_close_matches(word, _KNOWN, n=1)
            meant = f"; did you mean {close[0]!r}?" if close else "."
            raise TypeError(
                f"{word!r} is not a job option{meant} Pass keyword arguments of the function as kwargs={{...}} to submit,"
                " or with functools.partial(fn, ...) to map."
            )


#: A job type is a label with default requirements. It has no price, and `gaming` has no display or stream.
TYPES: dict[str, dict[str, Any]] = {"ml": {"gpus": 1, "vram": "8GB", "ram": "8GB"}, "gaming": {"gpus": 1}, "other": {}}


def with_type_defaults(options: JobOptions) -> Mapping[str, Any]:
    """The options with the defaults of their type; explicit options take precedence."""
    kind = options.get("type")
    if kind is None:
        return options
    if kind not in TYPES:
        raise BadRequest(f"type: {kind!r} is not one of {', '.join(TYPES)}.", field="type")
    defaults = dict(TYPES[kind])
    if options.get("gpus") == 0:
        defaults.pop("vram", None)  # it would imply a GPU
    labels = [*words(options.get("labels", [])), kind]
    return {**defaults, **options, "labels": labels}


_SAME_IN_NEEDS = (
    *("cores", "gpus", "compute_capability", "driver", "cuda"),
    *("host", "mesh_version", "isolation", "offered_only", "require", "prefer"),
)


def needs(options: JobOptions, *, python: str | None = None) -> Needs:
    plain = with_type_defaults(options)
    fields = needs_of(plain, _SAME_IN_NEEDS)
    if "properties" in plain:
        fields["properties"] = dict(plain["properties"])
    return validate(Needs, python=python, **fields)


_SAME_IN_SPEC = ("name", "allow_pickle", "checkpoints", "moves", "children", "nodes")


def spec(options: JobOptions, *, inputs: Sequence[InputFile], python: str | None = None, **what: Any) -> JobSpec:
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
    if "volumes" in plain:
        fields["volumes"] = [mount(text) for text in words(plain["volumes"])]
    fields |= rules(options)
    if "env" in plain:
        fields["env"] = dict(plain["env"])
    fields |= _secrets(plain)
    made = validate(JobSpec, **fields)
    try:
        return check_spec(made)  # before anything is sent
    except ValueError as error:
        raise BadRequest(f"{error}.") from error


def _secrets(options: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    given = options.get("secrets", ())
    if isinstance(given, Mapping):
        fields["secrets"] = dict(given)
    elif given:
        pairs = [text.partition("=") for text in words(given)]
        fields["secrets"] = {variable or name: name for name, _, variable in pairs}
        if len(fields["secrets"]) < len(pairs):
            raise BadRequest("secrets: two of them have the same variable; use NAME=VARIABLE.", field="secrets")
    if "registry_secret" in options:
        fields["registry_secret"] = options["registry_secret"]
    if "secret_owners" in options:
        fields["secret_owners"] = words(options["secret_owners"])
    if options.get("secrets_anywhere"):
        fields["secrets_anywhere"] = True
    return fields


def mount(text: str) -> VolumeMount:
    """NAME:/path or NAME:/path:ro."""
    name, _, rest = text.partition(":")
    path, _, mode = rest.partition(":")
    if not path or mode not in ("", "ro", "rw"):
        raise BadRequest(f"volumes: {text!r} is not NAME:/path or NAME:/path:ro.", field="volumes")
    try:
        return VolumeMount(volume=name, path=path, read_only=mode == "ro")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["loc"] == ("volume",):
            raise BadRequest(
                f"volumes: {name!a} is not the name of a volume: small letters, digits and -.", field="volumes"
            ) from error
        raise BadRequest(f"volumes: {first['msg'].removeprefix('Value error, ')}.", field="volumes") from error


def rules(options: JobOptions) -> dict[str, Any]:
    """Fields other than the needs that node owners may have rules about."""
    plain = with_type_defaults(options)
    fields: dict[str, Any] = {word: words(plain[word]) for word in ("labels", "net") if word in plain}
    if "image" in plain:
        fields["image"] = plain["image"]
    if "timeout" in plain:
        fields["timeout_s"] = seconds(plain["timeout"], what="timeout")
    return fields


def terms(options: JobOptions) -> dict[str, Any]:
    """The fields of a SubmitRequest other than spec, items and group."""
    plain: Mapping[str, Any] = options
    same = ("priority", "retries", "verify", "confidence", "impossible", "when")
    fields = {word: plain[word] for word in same if word in plain}
    if not {"verify", "confidence"} & fields.keys() and recipient(plain.get("seal")) is not None:
        fields["verify"] = "none"  # sealed results cannot be verified, which also affects quotes
    if isinstance(plain.get("compare"), str):
        fields["compare"] = plain["compare"]  # Submitter.terms adds a function
    if "ttl" in plain:
        fields["ttl_s"] = seconds(plain["ttl"], what="ttl")
    fields |= {word: microcredits(plain[word], what=word) for word in ("max_price", "budget") if word in plain}
    if "after" in plain:
        fields["after"] = [job if isinstance(job, str) else job.job_id for job in plain["after"]]
    validate(SubmitRequest, spec=JobSpec(kind=JobKind.COMMAND, name="any", argv=["true"]), **fields)
    return fields
