"""Identifiers: a short prefix and 128 time-sortable bits in Crockford base 32, so that new rows go to the end of an index."""

from __future__ import annotations

import re

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]  #: encodes 10 bits per step
_ENTROPY_BYTES = 10
_TIME_CHARACTERS = 10
_CHARACTERS = 26
_NODE_ID = re.compile(f"node_[{_ALPHABET}]{{26}}")


def make_id(prefix: str, now_ms: int, entropy: bytes) -> str:
    """The prefix, 10 characters of time and 16 of entropy."""
    if len(entropy) != _ENTROPY_BYTES:
        raise ValueError(f"entropy must be {_ENTROPY_BYTES} bytes")
    number = (now_ms << (8 * _ENTROPY_BYTES)) | int.from_bytes(entropy, "big")
    pairs = [_PAIRS[(number >> shift) & 1023] for shift in range(120, -10, -10)]
    return f"{prefix}_{''.join(pairs)}"


def earlier_id(id_: str, steps: int) -> str:
    """The id `steps` before this one. The ids of a batch are consecutive (`new_ids`)."""
    prefix, _, text = id_.rpartition("_")
    number = _number(text) - steps
    return make_id(prefix, number >> (8 * _ENTROPY_BYTES), (number % (1 << 8 * _ENTROPY_BYTES)).to_bytes(10, "big"))


def is_node_id(word: str) -> bool:
    """Whether the word looks like a node id. Such a word never means a node by name."""
    return _NODE_ID.fullmatch(word) is not None


def is_id(prefix: str, word: str) -> bool:
    """Whether the word is a complete id with this prefix."""
    bounds = id_range(prefix, word)
    return bounds is not None and bounds[0] == bounds[1] == word


def id_range(prefix: str, word: str) -> tuple[str, str] | None:
    """The least and greatest id that begins with the word, with or without the prefix; None if no id does.

    Both have the length of an id, so that every database orders them alike.
    """
    start = word.lower().removeprefix(f"{prefix}_")
    if not start or len(start) > _CHARACTERS or not set(start) <= set(_ALPHABET):
        return None
    least, most = (f"{prefix}_{start.ljust(_CHARACTERS, fill)}" for fill in "0z")
    return least, most


def time_of(id_: str) -> int:
    """The creation time of an id, in milliseconds."""
    return _number(id_.rpartition("_")[2][:_TIME_CHARACTERS])


def _number(text: str) -> int:
    number = 0
    for character in text:
        number = number * len(_ALPHABET) + _ALPHABET.index(character)
    return number
