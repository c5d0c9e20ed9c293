"""Isolation levels: how strongly a node separates a job from its owner's machine.

The order is the meaning: a job that requires a level runs at that level or a stronger one. How a level is implemented is
the agent's concern.
"""

from __future__ import annotations

from enum import IntEnum


class Level(IntEnum):
    #: A plain process with limits. Only for the owner's own jobs and for submitters the owner trusts.
    PROCESS = 0
    #: Kernel namespaces, a seccomp filter and an unprivileged user (bubblewrap).
    NAMESPACE = 2
    #: A container of an engine that the owner already runs (podman, docker).
    CONTAINER = 3
    #: A user-space kernel between the job and the host's kernel (runsc).
    GVISOR = 4

    @property
    def label(self) -> str:
        """The name used on the wire, in the CLI and on the web."""
        return self.name.lower()

    @property
    def meaning(self) -> str:
        """What the level protects against, as a sentence for owners and submitters."""
        return _MEANINGS[self]

    @classmethod
    def parse(cls, text: str) -> Level:
        """The level with this name. Raises a ValueError that lists the valid names."""
        try:
            return cls[text.strip().upper()]
        except KeyError:
            raise ValueError(f"unknown isolation level {text!r}; choose one of {', '.join(names())}") from None


def names() -> tuple[str, ...]:
    return tuple(level.label for level in Level)


_MEANINGS = {
    Level.PROCESS: "A plain process with limits, and the files and network of the user it runs as: only for the "
    "owner's own jobs and those of accounts the owner trusts.",
    Level.NAMESPACE: "Other people's jobs run unprivileged in their own Linux namespaces, with filtered system calls. "
    "They cannot see the owner's files, processes or network.",
    Level.CONTAINER: "Other people's jobs run in an unprivileged container, with filtered system calls. They cannot see "
    "the owner's files, processes or network.",
    Level.GVISOR: "Other people's jobs run on gVisor's own kernel in user space. They cannot reach the machine's "
    "kernel, files, processes or network.",
}
