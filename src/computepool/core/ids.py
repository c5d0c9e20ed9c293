"""Identifiers: short prefix + time-sortable 128 bits in Crockford base 32, so that new rows land at the end of an index."""

from __future__ import annotations

import re

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]  #: half as many steps
_ENTROPY_BYTES = 10
_TIME_CHARACTERS = 10
_CHARACTERS = 26
_NODE_ID = re.compile(f"node_[{_ALPHABET}]{{26}}")


def make_id(prefix: str, now_ms: int, entropy: bytes) -> str:
    """`job_` + 10 characters of time + 16 of entropy. Clock and randomness come from the caller."""
    if len(entropy) != _ENTROPY_BYTES:
        raise ValueError(f"entropy must be {_ENTROPY_BYTES} bytes")
    number = (now_ms << (8 * _ENTROPY_BYTES)) | int.from_bytes(entropy, "big")
    pairs = [_PAIRS[(number >> shift) & 1023] for shift in range(120, -10, -10)]
    return f"{prefix}_{''.join(pairs)}"


def is_node_id(word: str) -> bool:
    """Whether it looks like one: such a word means the node that has it, and none that is only called so."""
    return _NODE_ID.fullmatch(word) is not None


def is_id(prefix: str, word: str) -> bool:
    """Whether it is a whole one of this kind."""
    bounds = id_range(prefix, word)
    return bounds is not None and bounds[0] == bounds[1] == word


def id_range(prefix: str, word: str) -> tuple[str, str] | None:
    """The least and the greatest id that begins like this, the prefix being optional; None: no id does.

    Both are as long as an id is, so that every database orders them alike.
    """
    start = word.lower().removeprefix(f"{prefix}_")
    if not start or len(start) > _CHARACTERS or not set(start) <= set(_ALPHABET):
        return None
    least, most = (f"{prefix}_{start.ljust(_CHARACTERS, fill)}" for fill in "0z")
    return least, most


def time_of(id_: str) -> int:
    """When it was made, in milliseconds."""
    now_ms = 0
    for character in id_.rpartition("_")[2][:_TIME_CHARACTERS]:
        now_ms = now_ms * 32 + _ALPHABET.index(character)
    return now_ms
