"""Compares the standard output that a node sent with what it reported, as far as that can be told.

Pure rules. A report names the text by its digest and its length in characters; both are compared between runs. What the
hub has of the text is compared with them here. Standard error is never compared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Finding(StrEnum):
    WHOLE = "whole"  #: all of it is there, and it is what was reported
    CUT = "cut"  #: so much was printed that not all of it is kept
    LOST = "lost"  #: some is missing that the node should have sent
    FALSE = "false"  #: it is not what was reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a node says that a program printed."""

    digest: str
    chars: int


def compare_output(
    claim: Claim, *, kept_chars: int, sent_bytes: int, must_send_bytes: int, digest_kept: Callable[[], str]
) -> Finding:
    """`sent_bytes`: of all that the node sent, also of what was not kept; from `must_send_bytes` on it may leave out the rest.

    `digest_kept` is called only where the text can be the whole.
    """
    if kept_chars < claim.chars:
        return Finding.CUT if sent_bytes >= must_send_bytes else Finding.LOST
    if kept_chars > claim.chars or digest_kept() != claim.digest:
        return Finding.FALSE
    return Finding.WHOLE
