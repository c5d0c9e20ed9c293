"""Specs as the agent uses them: parsed once per digest, with everything that follows from them worked out."""

from __future__ import annotations

import re
import tomllib
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import cached_property

from computepool.agent.config import MIB
from computepool.agent.endings import BadJob
from computepool.agent.sandbox.base import Limits
from computepool.core.isolation import Level
from computepool.core.jobs import JobKind
from computepool.core.network import Target, parse_targets
from computepool.protocol.jobs import JobSpec

SPECS_MAX = 512
MEMORY_MIN_MB = 32
PIDS_MAX = 512
OPEN_FILES_MAX = 4096
TMP_MIN_MB = 64
WORKER_WALL_S = 90 * 24 * 3600.0

#: `name[extra] >=1,<2 ; marker`. No addresses, paths or options: uv runs outside the sandbox.
_REQUIREMENT = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[A-Za-z0-9._,\s-]*\])?\s*\(?[<>=!~][^;@/\\#${\n]*\)?\s*(;[^\n@\\#${]*)?"
    r"|[A-Za-z0-9][A-Za-z0-9._-]*\s*(\[[A-Za-z0-9._,\s-]*\])?\s*(;[^\n@\\#${]*)?"
)
_BLOCK = re.compile(r"^# /// script\s*$\n(?P<body>(^#(| .*)$\n)+?)^# ///\s*$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerKey:
    """What two calls must share to be served by the same warm worker."""

    account: str
    limits: Limits
    packages: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    inputs: tuple[tuple[str, str], ...]
    cards: tuple[int, ...]
    net: tuple[Target, ...] = ()


@dataclass(slots=True, eq=False, kw_only=True)
class PreparedSpec:
    digest: str
    spec: JobSpec
    limits: Limits
    isolation: Level | None
    net: tuple[Target, ...] = ()  #: hosts it may reach
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

    def worker_key(self, account: str, cards: tuple[int, ...]) -> WorkerKey:
        """The same object for the same arguments, so that the usual comparison is one of identity."""
        key = self.worker_keys.get((account, cards))
        if key is None:
            key = WorkerKey(
                account=account,
                # The agent times each call itself; a worker as a whole may live long.
                limits=replace(self.limits, wall_s=WORKER_WALL_S),
                packages=check_requirements(tuple(self.spec.dependencies)),
                env=tuple(sorted(self.spec.env.items())),
                inputs=self.inputs,
                cards=cards,
                net=tuple(sorted(self.net)),
            )
            self.worker_keys[account, cards] = key
        return key


class SpecCache:
    def __init__(self, size_max: int = SPECS_MAX) -> None:
        self._size_max = size_max
        self._specs: OrderedDict[str, PreparedSpec] = OrderedDict()

    def get(self, digest: str) -> PreparedSpec | None:
        found = self._specs.get(digest)
        if found is not None:
            self._specs.move_to_end(digest)
        return found

    def add(self, digest: str, body: str) -> PreparedSpec:
        """`body` was checked against `digest`. Raises ValidationError for what this agent cannot read."""
        prepared = prepare(digest, JobSpec.model_validate_json(body))
        self._specs[digest] = prepared
        while len(self._specs) > self._size_max:
            self._specs.popitem(last=False)
        return prepared


def prepare(digest: str, spec: JobSpec) -> PreparedSpec:
    needs = spec.needs
    inputs_mb = sum(file.size for file in spec.inputs) // MIB + 1
    memory_mb = max(MEMORY_MIN_MB, needs.ram_mb)
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


class Script:
    """A script's own words about itself: its interpreter line and its PEP 723 block."""

    def __init__(self, source: str) -> None:
        self._source = source

    @cached_property
    def interpreter(self) -> list[str]:
        """The command that the script's file is given to; Python where the script does not say."""
        first = self._source.partition("\n")[0].strip()
        words = first[2:].split() if first.startswith("#!") else []
        if words and words[0].rpartition("/")[2] == "env":
            words = words[2:] if words[1:2] == ["-S"] else words[1:]
        name = words[0].rpartition("/")[2] if words else "python3"
        if name in ("uv", "uvx") or re.fullmatch(r"python[\d.]*", name):
            # `uv run --script` means: Python, with the dependencies of the block; those are there already.
            flags = [] if name.startswith("uv") else words[1:]
            return ["python3", *flags]
        return words

    @property
    def is_python(self) -> bool:
        return self.interpreter[0] == "python3"

    @cached_property
    def dependencies(self) -> tuple[str, ...]:
        if not self.is_python:
            return ()
        blocks = list(_BLOCK.finditer(self._source.replace("\r\n", "\n") + "\n"))
        if not blocks:
            return ()
        if len(blocks) > 1:
            raise BadJob("the script has more than one `# /// script` block")
        lines = blocks[0]["body"].splitlines()
        try:
            metadata = tomllib.loads("\n".join(line[2:] for line in lines))
        except tomllib.TOMLDecodeError as error:
            raise BadJob(f"the script's `# /// script` block is not valid TOML: {error}") from error
        found = metadata.get("dependencies", [])
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise BadJob("`dependencies` in the script's `# /// script` block is not a list of strings")
        return tuple(found)


def check_requirements(requirements: tuple[str, ...]) -> tuple[str, ...]:
    """Sorted and without duplicates, so that the same set in another order is the same environment."""
    for text in requirements:
        if not _REQUIREMENT.fullmatch(text.strip()):
            raise BadJob(f"{text!r} is not a plain requirement (name, extras, versions, marker)")
    return tuple(sorted({" ".join(text.split()) for text in requirements}))
