"""Compares the standard output that a node sent with what its report says of it.

A report states the digest of the text and its length in characters, and both are compared between runs. Here they are
compared with the text that the hub has. Standard error is never compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Finding(StrEnum):
    WHOLE = "whole"  #: all of it is here, as reported
    CUT = "cut"  #: not all of it is kept, because there was too much
    LOST = "lost"  #: some text is missing that the node should have sent
    FALSE = "false"  #: the text differs from what was reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a node reports about the output of a program."""

    digest: str
    chars: int


def compare_output(
    claim: Claim, *, kept_chars: int, sent_bytes: int, must_send_bytes: int, kept_digest: str | None
) -> Finding:
    """`sent_bytes`: everything that the node sent, kept or not; a node may omit the rest after `must_send_bytes`.

    `kept_digest` may be None if the kept text is longer or shorter than claimed.
    """
    if kept_chars < claim.chars:
        return Finding.CUT if sent_bytes >= must_send_bytes else Finding.LOST
    if kept_chars > claim.chars or kept_digest != claim.digest:
        return Finding.FALSE
    return Finding.WHOLE
