"""Rules for what is submitted, beyond the shape of its fields: what would fail on every node is refused by the hub.

A job's failure to start is expensive: a node has been chosen, has fetched what the job needs, and looks as if it were to
blame. So whatever depends on the spec alone is judged here. JobSpec itself stays lenient: it also reads what was stored, or
sent by a hub, under earlier rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from computepool.core.jobs.lifecycle import JobKind
from computepool.core.plaintext import is_plain
from computepool.protocol.filenames import check_name
from computepool.protocol.jobs.requirements import check_python, check_requirements
from computepool.protocol.jobs.scripts import Script

if TYPE_CHECKING:
    from computepool.protocol.jobs.jobs import JobSpec

#: Arguments and environment together, in UTF-8 with the byte that ends each: well below what any sandbox level and the
#: kernel take (see COMMAND_BYTES_MAX of agent/sandbox/slots.py), which also has to hold the agent's own variables.
COMMAND_BYTES_MAX: Final = 128 * 1024


def check_spec(spec: JobSpec) -> JobSpec:
    """The same, with the Python that a script requires; ValueError says what of it no node could run."""
    needs = spec.needs
    for text in (spec.name, needs.host or "", *needs.exclude_hosts, *needs.properties.values()):
        if not is_plain(text):
            raise ValueError(f"{text!a} has control characters or marks of direction")
    _check_command(spec)
    for file in spec.inputs:
        check_name(file.name)
    if spec.kind is not JobKind.SCRIPT:
        check_requirements(spec.dependencies)
        return spec
    script = Script(spec.source or "")
    check_requirements([*spec.dependencies, *script.dependencies])
    return spec if needs.python else _with_python(spec, script.requires_python)


def _with_python(spec: JobSpec, versions: str | None) -> JobSpec:
    """What a script requires of Python is a need like any other: jobs are placed, quoted and explained by it."""
    if versions is None:
        return spec
    return spec.model_copy(update={"needs": spec.needs.model_copy(update={"python": check_python(versions)})})


def _check_command(spec: JobSpec) -> None:
    if spec.kind is JobKind.COMMAND and not spec.argv[0]:
        raise ValueError("argv: the name of the program is empty")
    if not (spec.argv or spec.env):
        return
    size = command_bytes((*spec.argv, *spec.env, *spec.env.values()))
    if size > COMMAND_BYTES_MAX:
        raise ValueError(
            f"argv and env take {size} bytes of {COMMAND_BYTES_MAX}; send long texts as input files"
        )


def command_bytes(texts: Iterable[str]) -> int:
    """How much of a process's start they take. ValueError for what no process could be given."""
    size = 0
    for text in texts:
        if "\0" in text:
            raise ValueError(f"{text[:40]!a} has a NUL character")
        size += len(text.encode()) + 1
    return size
