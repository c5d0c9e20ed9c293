"""References that people type in the place of an id: its beginning, a name, or `last`. The hub says what is meant."""

from __future__ import annotations

from computepool.core.ids import is_id
from computepool.protocol.references import Reference, ReferenceKind
from computepool.sdk.client.transport import Transport

_PREFIXES = {
    ReferenceKind.JOB: "job",
    ReferenceKind.NODE: "node",
    ReferenceKind.GROUP: "grp",
    ReferenceKind.ACCOUNT: "acc",
}


def find_id(transport: Transport, kind: ReferenceKind, word: str) -> str:
    """A whole id is believed: the first call with it says if there is no such thing."""
    if is_id(_PREFIXES[kind], word):
        return word
    return transport.get("/find", Reference, params={"kind": kind.value, "word": word}).id
