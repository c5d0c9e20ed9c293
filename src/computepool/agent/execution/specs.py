"""Job specs as the agent uses them: parsed once per digest, with everything derived from them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from computepool.agent.config import MIB
from computepool.agent.execution.attempt_result import BadJob
from computepool.agent.packages.interpreters import PYTHON
from computepool.agent.sandbox.base import Limits
from computepool.core.isolation import Level
from computepool.core.jobs.lifecycle import JobKind
from computepool.core.network import Target, parse_targets
from computepool.protocol.jobs import requirements
from computepool.protocol.jobs.jobs import JobSpec
from computepool.protocol.jobs.scripts import Script

SPECS_MAX = 512
MEMORY_MIN_MB = 32
PIDS_MAX = 512
OPEN_FILES_MAX = 4096
TMP_MIN_MB = 64
WORKER_WALL_S = 90 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SoftwareNeeds:
    """What a job needs besides the agent's own Python. Empty for most."""

    packages: tuple[str, ...] = ()
    python: str = ""  #: the versions that it needs; "" if the agent's own is one of them
    pythons: frozenset[str] = frozenset()  #: the minor versions that it needs, if it has packages; empty: any
    offered_only: bool = False
    image: str | None = None
    login: tuple[str, str] | None = field(default=None, repr=False)  #: user and password for the registry of the image

    def __bool__(self) -> bool:
        return bool(self.packages or self.python or self.image)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerKey:
    """Two calls with equal keys can share a warm worker."""

    account: str
    limits: Limits
    software: SoftwareNeeds
    env: tuple[tuple[str, str], ...]
    inputs: tuple[tuple[str, str], ...]
    cards: tuple[int, ...]
    vram_mb: int = 0  #: a worker keeps GPU memory between calls, which must not count against one that asked for less
    net: tuple[Target, ...] = ()
    secrets: tuple[tuple[str, str], ...] = field(default=(), repr=False)  #: values by variable
    only_for: str = ""  #: the attempt that has the worker for itself


@dataclass(slots=True, eq=False, kw_only=True)
class PreparedSpec:
    digest: str
    spec: JobSpec
    limits: Limits
    isolation: Level | None
    net: tuple[Target, ...] = ()  #: hosts that it may reach
    worker_keys: dict[tuple[str, tuple[int, ...]], WorkerKey] = field(default_factory=dict)

    @property
    def kind(self) -> JobKind:
        return self.spec.kind

    @property
    def timeout_s(self) -> float:
        return self.spec.timeout_s

    @property
    def inputs(self) -> tuple[tuple[str, str], ...]:
        return tuple((file.name, file.digest) for file in self.spec.inputs)

    @property
    def python(self) -> str:
        """The Python versions that it needs; "" if the agent's own is one of them."""
        versions = self.spec.needs.python or ""
        allowed = requirements.minor_versions(versions)
        return versions if allowed and PYTHON not in allowed else ""

    def software(self, packages: tuple[str, ...]) -> SoftwareNeeds:
        needs = self.spec.needs
        if not packages:
            return SoftwareNeeds(python=self.python, image=self.spec.image)
        return SoftwareNeeds(
            packages=packages,
            python=self.python,
            pythons=requirements.minor_versions(needs.python or ""),
            offered_only=needs.offered_only,
            image=self.spec.image,
        )

    def worker_key(self, account: str, cards: tuple[int, ...]) -> WorkerKey:
        """Returns the same object for the same arguments, which makes comparison fast."""
        key = self.worker_keys.get((account, cards))
        if key is None:
            key = WorkerKey(
                account=account,
                # The agent times each call itself; a worker as a whole may live long.
                limits=replace(self.limits, wall_s=WORKER_WALL_S),
                software=self.software(check_requirements(tuple(self.spec.dependencies))),
                env=tuple(sorted(self.spec.env.items())),
                inputs=self.inputs,
                cards=cards,
                vram_mb=self.spec.needs.vram_mb if cards else 0,
                net=tuple(sorted(self.net)),
            )
            self.worker_keys[account, cards] = key
        return key


class PreparedSpecCache:
    """`memory_mb`: how much of this node's memory a spec may use."""

    def __init__(self, memory_mb: Callable[[JobSpec], int]) -> None:
        self._memory_mb = memory_mb
        self._specs: OrderedDict[str, PreparedSpec] = OrderedDict()

    def get(self, digest: str) -> PreparedSpec | None:
        found = self._specs.get(digest)
        if found is not None:
            self._specs.move_to_end(digest)
        return found

    def relimit(self) -> None:
        """Call it when the owner's rules change. Running attempts keep their limits."""
        for digest, known in list(self._specs.items()):
            self._specs[digest] = prepare(digest, known.spec, memory_mb=self._memory_mb(known.spec))

    def add(self, digest: str, body: str) -> PreparedSpec:
        """`body` has this digest. Raises ValidationError if this agent cannot read it."""
        spec = JobSpec.model_validate_json(body)
        prepared = prepare(digest, spec, memory_mb=self._memory_mb(spec))
        self._specs[digest] = prepared
        while len(self._specs) > SPECS_MAX:
            self._specs.popitem(last=False)
        return prepared


def prepare(digest: str, spec: JobSpec, *, memory_mb: int) -> PreparedSpec:
    needs = spec.needs
    inputs_mb = sum(file.size for file in spec.inputs) // MIB + 1
    memory_mb = max(MEMORY_MIN_MB, memory_mb)
    limits = Limits(
        memory_mb=memory_mb,
        pids=PIDS_MAX,
        cpus=needs.cores,
        wall_s=spec.timeout_s,
        disk_mb=max(1, needs.disk_mb) + inputs_mb,
        tmp_mb=max(TMP_MIN_MB, memory_mb // 2),
        open_files=OPEN_FILES_MAX,
    )
    isolation = None if needs.isolation is None else Level.parse(needs.isolation)
    net = parse_targets(spec.net)
    return PreparedSpec(digest=digest, spec=spec, limits=limits, isolation=isolation, net=net)


def check_requirements(texts: tuple[str, ...]) -> tuple[str, ...]:
    """The requirements in a normal form. The hub may be hostile, and uv accepts more than requirements."""
    try:
        return requirements.check_requirements(texts)
    except ValueError as error:
        raise BadJob(str(error)) from error


def read_script(source: str) -> tuple[list[str], tuple[str, ...]]:
    script = Script(source)
    try:
        return script.interpreter, script.dependencies
    except ValueError as error:
        raise BadJob(str(error)) from error
