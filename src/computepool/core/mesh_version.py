"""Mesh versions: machines that must not work together because they run different things.

A version is a word that its people choose. The empty word means none.

- A hub that has a version lets in nodes of that version alone, and gives it to jobs that name none.
- A hub without one lets in any node.
- A job that has a version runs on nodes of that version alone (the gate in gates.py); one without runs anywhere.

So two nodes that could run the same job of a version have that version, both, on every hub.
"""

from __future__ import annotations


def refusal(*, hub: str, node: str) -> str | None:
    """Why a hub of one version does not take a node of another; None: it does."""
    if not hub or hub == node:
        return None
    its = f"of mesh version {node}" if node else "of no mesh version"
    return (
        f"This hub is of mesh version {hub} and the node is {its}; different versions are not mixed. "
        f"Start it with --mesh-version {hub}, or join another hub."
    )


def version_of_job(named: str | None, *, hub: str) -> str | None:
    """What a job is of, there: what it names, else what the hub is of."""
    return named or hub or None
