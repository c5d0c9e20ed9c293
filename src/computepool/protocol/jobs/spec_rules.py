"""Rules for submitted specs beyond their types: the hub refuses what would fail on every node.

A job that cannot start is expensive: a node has been chosen, has fetched everything, and looks as if it were to blame. So
everything that depends only on the spec is checked here. JobSpec itself stays lenient, because it also parses specs that
were stored or sent under earlier rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from computepool.core.jobs.lifecycle import JobKind
from computepool.core.plaintext import is_plain
from computepool.protocol.files import check_name
from computepool.protocol.jobs.requirements import check_python, check_requirements
from computepool.protocol.jobs.scripts import Script

if TYPE_CHECKING:
    from computepool.protocol.jobs.jobs import JobSpec

#: Arguments and environment in UTF-8, with the terminating bytes. Well below the limits of the kernel and of every sandbox
#: level (see COMMAND_BYTES_MAX in agent/sandbox/slots.py), which must also hold the agent's own variables.
COMMAND_BYTES_MAX: Final = 128 * 1024


def check_spec(spec: JobSpec) -> JobSpec:
    """The spec with the Python version that a script requires. Raises ValueError if no node could run it."""
    needs = spec.needs
    for text in (spec.name, needs.host or "", *needs.exclude_hosts, *needs.properties.values()):
        if not is_plain(text):
            raise ValueError(f"{text!a} has control characters or bidirectional characters")
    _check_command(spec)
    _check_gang(spec)
    _check_secrets(spec)
    for file in spec.inputs:
        check_name(file.name)
    _check_volumes(spec)
    if spec.kind is not JobKind.SCRIPT:
        _check_offered(spec, check_requirements(spec.dependencies))
        return spec
    # What a script requires is a requirement like any other: placement, quotes and explanations use it.
    script = Script(spec.source or "")
    dependencies = check_requirements([*spec.dependencies, *script.dependencies])
    _check_offered(spec, dependencies)
    changed: dict[str, object] = {"dependencies": list(dependencies)} if script.dependencies else {}
    if not needs.python and script.requires_python is not None:
        changed["needs"] = needs.model_copy(update={"python": check_python(script.requires_python)})
    return spec.model_copy(update=changed) if changed else spec


def _check_offered(spec: JobSpec, dependencies: tuple[str, ...]) -> None:
    if not spec.needs.offered_only:
        return
    if spec.image is not None:
        raise ValueError(
            "offered_only: a job with an image sees the files of that image, not an environment of the node"
        )
    if not dependencies:
        raise ValueError("offered_only needs dependencies: name the packages that a node must offer")
    if extras := [text for text in dependencies if "[" in text]:
        raise ValueError(f"offered_only: {extras[0]} has extras, which no offered environment can show to have")


def _check_secrets(spec: JobSpec) -> None:
    if twice := sorted(spec.secrets.keys() & spec.env.keys()):
        raise ValueError(f"secrets: the variable {twice[0]} is also in env; give it one value")
    if (spec.secret_owners or spec.secrets_anywhere) and not spec.has_secrets:
        raise ValueError("secrets: the job names no secret that other nodes could get")


def _check_volumes(spec: JobSpec) -> None:
    if not spec.volumes:
        return
    if spec.seal_to is not None:
        raise ValueError("volumes: the hub can read them, and the job is sealed; remove seal or the volumes")
    if spec.moves and not all(mount.read_only for mount in spec.volumes):
        raise ValueError("volumes: a job that moves to other hosts can only mount them read-only, as NAME:/path:ro")


def _check_command(spec: JobSpec) -> None:
    if spec.kind is JobKind.COMMAND and spec.argv and not spec.argv[0]:
        raise ValueError("argv: the name of the program is empty")
    if not (spec.argv or spec.env):
        return
    size = command_bytes((*spec.argv, *spec.env, *spec.env.values()))
    if size > COMMAND_BYTES_MAX:
        raise ValueError(
            f"argv and env take {size} bytes, and the limit is {COMMAND_BYTES_MAX}; send long texts as input files"
        )


def _check_gang(spec: JobSpec) -> None:
    if spec.nodes == 1:
        return
    if spec.needs.host:
        raise ValueError(f"nodes: a job on {spec.nodes} nodes cannot name one host; select its nodes with tags")
    if spec.moves:
        raise ValueError("nodes: a job on several nodes cannot move to another host")
    if spec.kind is JobKind.CLASS:
        raise ValueError("nodes: a job class runs on one node; submit a function or a program")


def command_bytes(texts: Iterable[str]) -> int:
    """The bytes that the texts take in a process's arguments and environment. Raises ValueError for NUL characters."""
    size = 0
    for text in texts:
        if "\0" in text:
            raise ValueError(f"{text[:40]!a} has a NUL character")
        size += len(text.encode()) + 1
    return size
