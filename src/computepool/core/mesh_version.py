"""Mesh versions keep machines apart that must not work together because they run different software.

A version is any word that the operators choose. The empty word means no version.

- A hub with a version admits only nodes of that version, and assigns it to jobs that name none.
- A hub without a version admits any node.
- A job with a version runs only on nodes of that version (see gates.py). A job without one runs anywhere.

So all nodes that could run the same job with a version have that version, on every hub.
"""

from __future__ import annotations


def refusal(*, hub: str, node: str) -> str | None:
    """Why a hub of one version does not admit a node of another; None if it does."""
    if not hub or hub == node:
        return None
    return (
        f"This hub has mesh version {hub}, but the node has {f'mesh version {node}' if node else 'no mesh version'}. "
        f"Start the node with --mesh-version {hub}, or join another hub."
    )


def version_of_job(named: str | None, *, hub: str) -> str | None:
    """The version that the job names, or else the hub's."""
    return named or hub or None
