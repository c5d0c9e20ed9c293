"""The folder layout of a group's results, for the home node and for `pool group fetch`.

    summary.json     the collector's summary
    results.jsonl    one line per item, with the paths of its files
    files/<item>/…   the outputs of each job, under their own names
    values/<item>    results that are too large for a line
    manifest.txt     SHA-256 of everything above, for `sha256sum -c`

Keys and file names are untrusted: no path leads out of the folder, and no two files share a path, even on file systems
that ignore case.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from computepool.protocol.files import check_output_name
from computepool.protocol.jobs.groups import GroupItem
from computepool.protocol.jobs.unbundling import apart, key_of
from computepool.protocol.jobs.views import OutputFile

SUMMARY, RESULTS, MANIFEST, ARRIVAL = "summary.json", "results.jsonl", "manifest.txt", "arrival.json"
FILES, VALUES = "files", "values"
_ODD = "odd-names"
_NAME_MAX = 80
#: Keys that can be used as folder names. Others get a hash appended, and so do keys that look as if they had one.
_PLAIN = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")
_LOOKS_MADE = re.compile(r".*-[0-9a-f]{12}|(job|grp)_.*|.*\.|(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """One file of an item."""

    path: str  #: relative to the folder, with slashes
    digest: str
    name: str  #: the job's own name for it; empty for the result
    size: int | None = None  #: unknown for a result


def group_folder(name: str, group_id: str, round_: int) -> str:
    """The folder of a group. Rounds after the first one get their own."""
    words = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:_NAME_MAX]
    later = f"-{round_}" if round_ > 1 else ""
    return f"{words or 'group'}-{_check_id(group_id)}{later}"


def _check_id(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", text):
        raise ValueError(f"{text[:80]!r} is not an id")
    return text


def item_folder(item: GroupItem) -> str:
    if item.key is None:
        return _check_id(item.job_id or "")
    if _PLAIN.fullmatch(item.key) and not _LOOKS_MADE.fullmatch(item.key):
        return item.key
    words = re.sub(r"[^A-Za-z0-9_-]+", "-", item.key).strip("-")[:_NAME_MAX] or "key"
    return f"{words}-{hashlib.sha256(item.key.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def plan(item: GroupItem) -> list[Placed]:
    """The paths of one item's files."""
    folder = item_folder(item)
    placed = [
        Placed(path=f"{FILES}/{folder}/{inner}", digest=output.digest, name=output.name, size=output.size)
        for inner, output in _inner(item.outputs)
    ]
    if item.result_artifact is not None:
        placed.append(Placed(path=f"{VALUES}/{folder}", digest=item.result_artifact, name=""))
    for file in placed:
        if not re.fullmatch(r"[0-9a-f]{64}", file.digest):
            raise ValueError(f"{file.digest[:80]!r} is not a SHA-256")
    return placed


def lines(item: GroupItem, files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of an item in results.jsonl. `item` distinguishes the items of one job."""
    found = []
    for index, part in apart(item):
        fields = part.model_dump(mode="json", exclude_none=True, exclude={"outputs"})
        place = {} if index is None else {"key": key_of(item, index), "item": index}
        found.append(fields | place | {"files": files})
    return found


def _inner(outputs: Iterable[OutputFile]) -> Iterable[tuple[str, OutputFile]]:
    """Paths inside the item's folder. Files with unsuitable or conflicting names go to a separate folder."""
    taken: set[str] = set()
    folders: set[str] = {_ODD}
    for number, output in enumerate(outputs):
        try:
            names = check_output_name(output.name)
        except ValueError:
            yield f"{_ODD}/{number}", output
            continue
        parts = [unicodedata.normalize("NFC", name).casefold() for name in names]
        above = {"/".join(parts[:depth]) for depth in range(1, len(parts))}
        place = "/".join(parts)
        if place in taken or place in folders or above & taken or parts[0] == _ODD:
            yield f"{_ODD}/{number}", output
            continue
        taken.add(place)
        folders |= above
        yield output.name, output
