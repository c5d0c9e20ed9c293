"""Hosts by name. Anybody may give a node any name, so a name is read in the view of who says it, and turned into an id once."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from computepool.core.ids import is_node_id

#: What stands for a node without being the name of one.
_OTHER_MEANINGS = frozenset({"last", "node_"})
_CLOSEST_MAX = 3
#: Comparing two names takes the square of their lengths, or more, and other people choose them: so few, and so short ones.
_COMPARED_MAX = 50
_COMPARED_CHARS_MAX = 40
#: In length, and in the letters that only one of them has.
_APART_MAX = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    id: str
    owner: str
    live: bool = True


def candidates(word: str, called: Sequence[Host], *, account: str) -> list[Host]:
    """Which hosts an account may mean by an id or a name: exactly one is an answer, several are ambiguous.

    `called`: all that have that id or name, newest first. An id means the host that has it. A name means one's own host; else one
    of somebody else's, if nobody besides has a host of that name. Of one owner's hosts of a name those that are there count, or
    the newest: a machine that was set up again has its old name.
    """
    exact = [host for host in called if host.id == word]
    if exact or is_node_id(word):
        return exact
    own = [host for host in called if host.owner == account]
    meant = own or list(called)
    if len({host.owner for host in meant}) > 1:
        return meant
    return [host for host in meant if host.live] or meant[:1]


def name_key(name: str) -> str:
    """Names that look the same to a reader, as far as Unicode tells, are the same."""
    return unicodedata.normalize("NFKC", name).casefold()


def name_problem(name: str) -> str:
    """Why no node may have this name; empty if it may."""
    if is_node_id(name.strip().lower()):
        return "a name cannot be an id"
    if "://" in name or name.strip().casefold() in _OTHER_MEANINGS:
        return "a name cannot be an address, `last` or the beginning of an id"
    if name != name.strip() or unicodedata.normalize("NFKC", name) != name:
        return "write the name in plain characters, without spaces around it"
    # Invisible ones, and those that change the direction in which a name is read.
    if any(unicodedata.category(character)[0] == "C" for character in name):
        return "a name has no invisible or control characters"
    return ""


def closest(word: str, names: Iterable[str]) -> list[str]:
    """Names that may have been meant. A hint: it must not take long, whatever the names are."""
    key = name_key(word)
    if len(key) > _COMPARED_CHARS_MAX:
        return []
    keyed = ((name_key(name), name) for name in names)
    by_key = dict(islice((pair for pair in keyed if _is_like(pair[0], key)), _COMPARED_MAX))
    return [by_key[near] for near in difflib.get_close_matches(key, by_key, n=_CLOSEST_MAX)]


def _is_like(one: str, other: str) -> bool:
    return abs(len(one) - len(other)) <= _APART_MAX and len(set(one) ^ set(other)) <= _APART_MAX


def spellings(name: str, url: str) -> Collection[str]:
    """What a node that is called so and is reached there goes by, besides its id.

    A host that says http://10.0.0.7:8765 is http://laptop:8765 to those who know its name. The id of another is no name.
    """
    scheme, separator, rest = url.partition("://")
    _, colon, port = rest.rpartition(":")
    known = separator and colon and port.isdigit()
    by_name = f"{scheme}://{name}:{port}" if known else ""
    return {word for word in (name, url, by_name) if word and not is_node_id(word)}
