"""Wire models of jobs. A submission consists of one immutable spec and one item per job."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from computepool.core import expressions
from computepool.core.fleet.versions import CONDITION_CHARS_MAX, conditions_of, number_of
from computepool.core.isolation import Level
from computepool.core.jobs.lifecycle import CALLED, JobKind, When
from computepool.core.network import TARGETS_MAX, parse_targets
from computepool.core.resources import ARTIFACT, DEFAULT_RAM_MB, IMAGE, UPLOADED, Requirements
from computepool.core.trust.tiers import region_of
from computepool.protocol.base import (
    LIST_MAX,
    Count,
    Digest,
    Id,
    Micro,
    Name,
    NewName,
    PositiveMicro,
    Region,
    Reply,
    Request,
    Tag,
)
from computepool.protocol.gangs import NODES_MAX
from computepool.protocol.images.names import NAME_CHARS_MAX, check_image, parse_image
from computepool.protocol.jobs.checks import CompareText, VerifyText, check_one_way
from computepool.protocol.jobs.requirements import (
    REQUIREMENT_CHARS_MAX,
    REQUIREMENTS_MAX,
    check_python,
    check_requirements,
    dependencies_key,
    dependencies_of,
    minor_versions,
)
from computepool.protocol.jobs.spec_rules import check_spec
from computepool.protocol.secrets import WithSecrets
from computepool.protocol.volumes.volumes import MOUNTS_MAX, VolumeMount, check_mounts

#: Limits for inline data; anything larger is sent as an artifact.
SOURCE_MAX = 256 * 1024
PAYLOAD_MAX = 256 * 1024
RESULT_INLINE_MAX = 256 * 1024
#: Bytes of a whole result, which its reader loads into memory. Larger data must be written to files.
RESULT_MAX = 64 * 1024 * 1024
ITEMS_MAX = 1_000
#: Input files and dependencies of all jobs of a submission together. Each one is a row per job.
LINKS_MAX = 100_000
#: Input files of at least this size, up to this number, decide where a job starts soonest. Smaller ones arrive in a second,
#: and jobs that differ in them stay interchangeable for placement.
WARM_INPUT_MIN = 32 * 1024 * 1024
WARM_INPUTS_MAX = 4
HOSTS_MAX = 64  #: hosts that a job may exclude
CHILDREN_MAX = 100_000
BUNDLED_MAX = 10_000  #: items in one job
TIMEOUT_MAX_S = 7 * 24 * 3600
PRIORITY_MIN, PRIORITY_MAX = -100, 100
MB_MAX = 64 * 1024 * 1024
MBPS_MAX = 1_000_000

Megabytes = Annotated[int, Field(ge=0, le=MB_MAX)]
EnvName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=128)]
ShortText = Annotated[str, StringConstraints(max_length=16_384)]
#: A minor version of Python, or a specifier as in a script's `requires-python`.
PythonVersions = Annotated[
    str, Field(max_length=REQUIREMENT_CHARS_MAX, examples=["3.12", ">=3.12"]), AfterValidator(check_python)
]
#: Its full form is stored, so that nothing depends on which registry is the usual one.
ImageText = Annotated[str, Field(max_length=NAME_CHARS_MAX, examples=["python:3.12"]), AfterValidator(check_image)]
FileName = Annotated[str, StringConstraints(min_length=1, max_length=255, pattern=r"^[^\x00-\x1f\x7f]+$")]


def _check_level(text: str) -> str:
    Level.parse(text)
    return text


def _check_conditions(text: str) -> str:
    conditions_of(text)
    return text


def _check_capability(text: str) -> str:
    if not number_of(text):
        raise ValueError(f"{text!a} is not a compute capability, such as 8.0")
    return text


VersionConditions = Annotated[
    str, Field(max_length=CONDITION_CHARS_MAX, examples=[">=12.4"]), AfterValidator(_check_conditions)
]
CapabilityText = Annotated[str, Field(max_length=16, examples=["8.0"]), AfterValidator(_check_capability)]
LevelName = Annotated[str, AfterValidator(_check_level)]


#: Packages that a job imports, for questions about it; a spec has its own.
Dependencies = Annotated[
    list[Annotated[str, StringConstraints(max_length=REQUIREMENT_CHARS_MAX)]],
    Field(max_length=REQUIREMENTS_MAX, examples=[["torch>=2.4"]]),
    AfterValidator(lambda texts: list(check_requirements(texts))),
]


class Needs(Request):
    """Hard minimums and preferences. Sizes in MB, VRAM per GPU."""

    cores: float = Field(default=1, ge=0.001, le=10_000)
    ram_mb: Megabytes | None = None  #: null: the cores' share of the node's memory, and 512 at least
    disk_mb: Megabytes = 256
    gpus: int = Field(default=0, ge=0, le=64)
    vram_mb: Megabytes = 0
    compute_capability: CapabilityText | None = None  #: the least, of each GPU
    driver: VersionConditions | None = None  #: on the NVIDIA driver
    cuda: VersionConditions | None = None  #: on the newest CUDA that the driver runs
    tiers: list[Tag] = Field(default=[], max_length=64)
    regions: list[Region] = Field(default=[], max_length=64)
    tags: list[Tag] = Field(default=[], max_length=64)
    prefer_tags: list[Tag] = Field(default=[], max_length=64)
    exclude_tags: list[Tag] = Field(default=[], max_length=64)
    properties: dict[Tag, Name] = Field(default={}, max_length=64)
    exclude_hosts: list[Name] = Field(default=[], max_length=HOSTS_MAX)
    host: Name | None = None
    mesh_version: Tag | None = None
    python: PythonVersions | None = None
    isolation: LevelName | None = Field(default=None, examples=["namespace"])
    #: only on nodes whose owner offers an environment with all dependencies: nothing is installed
    offered_only: bool = False
    #: an expression over tags and properties
    require: Annotated[str, Field(max_length=expressions.CHARS_MAX), AfterValidator(expressions.check)] | None = Field(
        default=None, examples=['tag.ssd and (site == "lab-3" or not tag.laptop)']
    )
    #: megabits per second, as measured between node and hub; a node of unknown speed is not fast enough
    down_mbps: int = Field(default=0, ge=0, le=MBPS_MAX)
    up_mbps: int = Field(default=0, ge=0, le=MBPS_MAX)
    prefer: Literal["balanced", "cheapest", "fastest"] = "balanced"

    def requirements(self) -> Requirements:
        return Requirements(
            cpu_milli=max(1, round(self.cores * 1000)),
            ram_mb=DEFAULT_RAM_MB if self.ram_mb is None else self.ram_mb,
            ram_by_cores=self.ram_mb is None,
            disk_mb=self.disk_mb,
            gpus=max(self.gpus, 1 if self.vram_mb or self.compute_capability or self.driver or self.cuda else 0),
            vram_mb=self.vram_mb,
            compute_capability=number_of(self.compute_capability or ""),
            driver=conditions_of(self.driver or ""),
            cuda=conditions_of(self.cuda or ""),
            tiers=frozenset(tier.lower() for tier in self.tiers),
            regions=frozenset(region_of(region) for region in self.regions),
            tags=frozenset(self.tags),
            prefer_tags=frozenset(self.prefer_tags),
            exclude_tags=frozenset(self.exclude_tags),
            properties=frozenset(self.properties.items()),
            exclude_nodes=frozenset(host.rstrip("/") if "://" in host else host for host in self.exclude_hosts),
            node=self.host or "",
            mesh_version=self.mesh_version or "",
            pythons=minor_versions(self.python or ""),
            isolation=None if self.isolation is None else Level.parse(self.isolation),
            offered_only=self.offered_only,
            require=self.require or "",
            down_mbps=self.down_mbps,
            up_mbps=self.up_mbps,
            prefer="" if self.prefer == "balanced" else self.prefer,
        )


#: The parser enforces the exact limit, because its message is better.
NetTargets = Annotated[
    list[Annotated[str, StringConstraints(max_length=300)]],
    Field(max_length=4 * TARGETS_MAX, examples=[["files.example.org:443"]]),
    AfterValidator(lambda texts: [str(target) for target in parse_targets(texts)]),
]


def requirements_of(
    needs: Needs,
    *,
    net: Sequence[str],
    labels: Sequence[str],
    timeout_s: float,
    dependencies: Sequence[str] = (),
    inputs: Sequence[InputFile] = (),
    nodes: int = 1,
    image: str | None = None,
) -> Requirements:
    software = dependencies_of(dependencies) if dependencies else frozenset()
    large = sorted((file.size, file.digest) for file in inputs if file.size >= WARM_INPUT_MIN)[-WARM_INPUTS_MAX:]
    warm = [dependencies_key(software)] if software else []
    found = None if image is None else parse_image(image)
    if found is not None and found.digest:
        warm.append(f"{IMAGE}{found.hex_digest}")
    return replace(
        needs.requirements(),
        software=software,
        warm=frozenset((*warm, *(f"{ARTIFACT}{digest}" for _, digest in large))),
        network=bool(net),
        labels=frozenset(label.lower() for label in labels),  # a rule against `mining` also means `Mining`
        minutes=math.ceil(timeout_s / 60),
        nodes=nodes,
        image_source="" if found is None else found.source,
    )


class InputFile(Request):
    """An artifact that is placed in the job's folder as `name` before it starts."""

    name: FileName
    digest: Digest
    size: Count


class JobSpec(WithSecrets):
    """What to run, and what it needs. Immutable, identified by its digest, shared by all jobs of a submission."""

    kind: JobKind
    name: Name
    needs: Needs = Needs()
    argv: list[ShortText] = Field(default=[], max_length=LIST_MAX)  #: command line, or arguments of a script
    source: str | None = Field(default=None, max_length=SOURCE_MAX)  #: text of a script
    #: base64 of a pickled callable
    function: str | None = Field(default=None, max_length=SOURCE_MAX * 4 // 3 + 4)
    function_artifact: Digest | None = None  #: the callable as an artifact, if larger than the inline limit
    dependencies: list[ShortText] = Field(default=[], max_length=200)  #: PEP 508, installed from wheels only
    env: dict[EnvName, ShortText] = Field(default={}, max_length=200)
    inputs: list[InputFile] = Field(default=[], max_length=LIST_MAX)
    timeout_s: float = Field(default=3600, gt=0, le=TIMEOUT_MAX_S)
    allow_pickle: bool = False  #: the client accepts a pickled result
    labels: list[Tag] = Field(default=[], max_length=32)
    #: X25519 key in base64: its results and outputs are encrypted to this key before they leave the node
    seal_to: str | None = Field(default=None, pattern=r"^[A-Za-z0-9+/]{43}=$")
    net: NetTargets = []  #: hosts it may reach, as host:port or *.domain:port; none by default
    checkpoints: bool = False  #: it saves checkpoints, which are kept only for such jobs
    moves: bool = False  #: it may continue on hosts that it names; implies checkpoints
    #: named folders that outlive it
    volumes: Annotated[list[VolumeMount], AfterValidator(check_mounts)] = Field(default=[], max_length=MOUNTS_MAX)
    #: jobs that it may submit while it runs, including those that they submit
    children: int = Field(default=0, ge=0, le=CHILDREN_MAX)
    #: microcredits that they may cost together; default: its own hold times `children`
    children_budget: Micro | None = None
    #: A gang: it runs on this many nodes of one owner, or of its mesh, at once, with a rank on each.
    nodes: int = Field(default=1, ge=1, le=NODES_MAX)
    takes_results: bool = False  #: its arguments contain results of other jobs (`uses` of its items)
    image: ImageText | None = None  #: the container image whose files it sees; default: the node's own runtime

    @property
    def image_artifact(self) -> str | None:
        """The artifact that its image is in; None if it has no image, or one of a registry."""
        found = None if self.image is None else parse_image(self.image)
        return found.hex_digest if found is not None and found.source == UPLOADED else None

    @property
    def saves(self) -> bool:
        return self.checkpoints or self.moves

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.kind is JobKind.COMMAND and not (self.argv or self.image):
            raise ValueError("a command job needs argv, or an image that has a command of its own")
        if self.kind is JobKind.SCRIPT and not self.source:
            raise ValueError("a script job needs its source")
        if self.kind in CALLED and not (self.function or self.function_artifact):
            raise ValueError(f"a {self.kind} job needs function or function_artifact")
        return self

    def requirements(self) -> Requirements:
        """Everything that decides where it may run, including what owners' rules are about."""
        found = requirements_of(
            self.needs,
            net=self.net,
            labels=self.labels,
            timeout_s=self.timeout_s,
            dependencies=self.dependencies,
            inputs=self.inputs,
            nodes=self.nodes,
            image=self.image,
        )
        return found if (owners := self.secret_readers) is None else replace(found, secret_owners=owners)

    def body(self) -> str:
        """The canonical text, which is stored, signed and digested."""
        return self.model_dump_json(exclude_defaults=True)


def spec_digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


class Item(Request):
    """One job of a submission."""

    key: NewName | None = None  #: the submitter's name for it, unique in its group
    #: base64; arguments of a function
    payload: str | None = Field(default=None, max_length=PAYLOAD_MAX * 4 // 3 + 4)
    payload_artifact: Digest | None = None
    bundled: int = Field(default=1, ge=1, le=BUNDLED_MAX)  #: items of its group in this job
    #: a finished job of the group that had these items, which count here from now on
    replaces: Id | None = None
    #: jobs whose results its arguments contain; it waits until all of them have succeeded
    uses: list[Id] = Field(default=[], max_length=LIST_MAX)

    @property
    def is_bundle(self) -> bool:
        """Whether the payload was written by `bundles.pack`, whose codec the hub does not load."""
        try:
            return self.payload is not None and base64.b64decode(self.payload[:4])[:1] == b"*"
        except ValueError:
            return False


class CompareFunction(Request):
    """A function that the submitter provides: true if two results are equal. It runs on a node, like a job."""

    #: base64 of a pickled callable
    function: str | None = Field(default=None, max_length=SOURCE_MAX * 4 // 3 + 4)
    function_artifact: Digest | None = None  #: the callable as an artifact, if larger than the inline limit
    python: PythonVersions | None = None  #: the version that pickled it

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if bool(self.function) == bool(self.function_artifact):
            raise ValueError("a comparison needs either function or function_artifact")
        return self


class SubmitRequest(Request):
    """One spec, one job per item (default: a single job)."""

    spec: Annotated[JobSpec, AfterValidator(check_spec)]
    items: list[Item] = Field(default=[Item()], min_length=1, max_length=ITEMS_MAX)
    priority: int = Field(default=0, ge=PRIORITY_MIN, le=PRIORITY_MAX)
    retries: int = Field(default=0, ge=0, le=100)
    after: list[Id] = Field(default=[], max_length=LIST_MAX)
    when: When = When.SUCCESS  #: the condition on these jobs
    ttl_s: float = Field(default=7 * 24 * 3600, gt=0, le=90 * 24 * 3600)
    group_id: Id | None = None  #: one of your groups
    #: Microcredits per hour and job; 0: only your own nodes; default: about twice the current price.
    max_price: Micro | None = None
    #: Microcredits for all items together; each job stops when its share is spent.
    budget: PositiveMicro | None = None
    #: none, adaptive, quorum:K or confidence:P; default: the operator's choice.
    verify: VerifyText | None = None
    confidence: float | None = Field(default=None, ge=0.5, lt=1)  #: shorthand for verify=confidence:P
    #: exact (default), tolerance:REL or tolerance:REL,ABS; needs verification
    compare: CompareText | None = None
    compare_function: CompareFunction | None = None  #: instead of compare
    #: For jobs that no node could ever run: wait for a node that can, or submit nothing (409).
    impossible: Literal["queue", "refuse"] = "queue"

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.compare is not None and self.compare_function is not None:
            raise ValueError("use either compare or compare_function, not both")
        uses = any(item.uses for item in self.items)
        if uses and not (self.spec.kind is JobKind.FUNCTION and self.spec.takes_results):
            raise ValueError("only a function that takes results can use those of other jobs (spec.takes_results)")
        if self.when is not When.SUCCESS and (uses or not self.after):
            raise ValueError(f"when: {self.when} needs jobs in `after`, and no results of jobs as arguments")
        check_one_way(self.verify, self.confidence)
        return self


class ResubmitRequest(Request):
    """Submit the same job again."""

    #: same: the original limits; today: as if submitted now without limits
    terms: Literal["same", "today"] = "same"


class SubmitReply(Reply):
    job_ids: list[str]  #: in the order of the items
    group_id: str | None = None
    hold: int = 0  #: microcredits set aside for all of them
    max_price: int = 0  #: the most that each may cost per hour
    verify: str = "none"  #: how their results are checked
    own_node: bool = False  #: one of your own nodes could run them for free
    warning: str = ""  #: why no connected node can run them, as a sentence; they wait in the queue


def too_large_result(size: int | None, most: int) -> str:
    """For the submitter. `size`: None if unknown."""
    has = "is larger" if size is None else f"has {size} bytes, more"
    return f"The result {has} than the limit of {most} bytes; write large data to files in outputs/ instead."
