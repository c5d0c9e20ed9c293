"""Hosts by name. Anybody may give a node any name, so names are resolved from the account's point of view, once, to ids."""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from computepool.core.ids import is_node_id

#: Words with another meaning where a node is expected.
_RESERVED = frozenset({"last", "node_"})
_CLOSEST_MAX = 3
#: Comparing two names takes at least quadratic time, and other people choose them. So only few and short names are compared.
_COMPARED_MAX = 50
_COMPARED_CHARS_MAX = 40
#: The most by which similar names may differ in length, and in letters that occur in only one of them.
_APART_MAX = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    id: str
    owner: str
    live: bool = True


def candidates(word: str, called: Sequence[Host], *, account: str) -> list[Host]:
    """The hosts that an account may mean by an id or a name. Exactly one is an answer; several are ambiguous.

    `called`: all hosts with that id or name, newest first. An id means the host that has it. A name means the account's own
    host, or else another owner's if only one owner has hosts of that name. Of several hosts of one owner the live ones
    count, or else the newest, because a machine that is set up again keeps its name.
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
    """Equal for names that look the same to a reader, as far as Unicode can tell."""
    return unicodedata.normalize("NFKC", name).casefold()


def name_problem(name: str) -> str:
    """Why a node may not have this name; empty if it may."""
    if is_node_id(name.strip().lower()):
        return "a name cannot be an id"
    if "://" in name or name.strip().casefold() in _RESERVED:
        return "a name cannot be an address, `last` or the beginning of an id"
    if name != name.strip() or unicodedata.normalize("NFKC", name) != name:
        return "write the name in plain characters, without spaces around it"
    # Invisible characters, and those that change the reading direction.
    if any(unicodedata.category(character)[0] == "C" for character in name):
        return "a name has no invisible or control characters"
    return ""


def closest(word: str, names: Iterable[str]) -> list[str]:
    """Similar names, as a hint. Fast, whatever the names are."""
    key = name_key(word)
    if len(key) > _COMPARED_CHARS_MAX:
        return []
    keyed = ((name_key(name), name) for name in names)
    by_key = dict(islice((pair for pair in keyed if _is_like(pair[0], key)), _COMPARED_MAX))
    return [by_key[near] for near in difflib.get_close_matches(key, by_key, n=_CLOSEST_MAX)]


def _is_like(one: str, other: str) -> bool:
    return abs(len(one) - len(other)) <= _APART_MAX and len(set(one) ^ set(other)) <= _APART_MAX


def spellings(name: str, url: str) -> Collection[str]:
    """The words for a node with this name and URL, besides its id.

    The host at http://10.0.0.7:8765 is also http://laptop:8765 to those who know its name. An id is never a name.
    """
    scheme, separator, rest = url.partition("://")
    _, colon, port = rest.rpartition(":")
    known = separator and colon and port.isdigit()
    by_name = f"{scheme}://{name}:{port}" if known else ""
    return {word for word in (name, url, by_name) if word and not is_node_id(word)}
