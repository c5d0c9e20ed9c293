"""Manifests from an untrusted machine: only what is safe to create is accepted."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from computepool.core.errors import BadRequest
from computepool.protocol.volumes import manifest
from computepool.protocol.volumes.manifest import CHUNK_MAX, link_problem
from computepool.protocol.volumes.volumes import check_mount_path, variable_of

PACK, CHUNK = "a" * 64, "b" * 64


def body(**fields: Any) -> bytes:
    return json.dumps({"packs": [[PACK, 100]], "chunks": [[CHUNK, 0, 0, 10]], **fields}).encode()


def test_a_plain_manifest_is_read() -> None:
    read = manifest.read(body(folders=[["a", 0o755]], files=[["a/b", 0o644, [0, 0]]], links=[["a/l", "../a/b"]]))
    assert (read.size, read.files[0][0]) == (20, "a/b")


@pytest.mark.parametrize(
    "fields",
    [
        {"files": [["../b", 0o644, []]]},
        {"files": [["/etc/passwd", 0o644, []]]},
        {"files": [["a/../../b", 0o644, []]]},
        {"files": [["a//b", 0o644, []]]},
        {"files": [["a\u0000b", 0o644, []]]},
        {"files": [["a\u001b[2J", 0o644, []]]},
        {"files": [["x/" * 40 + "y", 0o644, []]]},
        {"files": [["n" * 300, 0o644, []]]},
        {"files": [["missing/b", 0o644, []]]},
        {"files": [["b", 0o644, []], ["b", 0o600, []]]},
        {"files": [["b", 0o4755, []]]},
        {"files": [["b", 0o644, [1]]]},
        {"files": [["b", 0o644, [-1]]]},
        {"files": [["l/x", 0o644, []]], "links": [["l", "elsewhere"]]},  # through a link
        {"folders": [["l", 0o755]], "links": [["l", "elsewhere"]]},
        {"links": [["l", "/etc"]]},
        {"links": [["l", ".."]]},
        {"links": [["l", "a/../../x"]]},
        {"links": [["l", "a//b"]]},
        {"folders": [["d", 0o755]], "links": [["d/l", "../../x"]]},
        {"chunks": [[CHUNK, 0, 95, 10]]},
        {"chunks": [[CHUNK, 1, 0, 10]]},
        {"chunks": [[CHUNK, 0, 0, CHUNK_MAX + 1]]},
        {"packs": [["../../etc", 100]]},
        {"packs": [[PACK, 2**40]]},
        {"format": 2},
        {"more": 1},
    ],
)
def test_a_hostile_manifest_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(BadRequest, match=r"^This is no manifest of a volume: [^\n\x1b]*\.$"):
        manifest.read(body(**fields))


@pytest.mark.parametrize("text", [b"", b"[]", b"\xff", b'{"files": 3}', b"{" * 10_000])
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(BadRequest):
        manifest.read(text)


names = st.sampled_from(["a", "b", "..", ".", "", "c"])


@given(st.lists(names, min_size=1, max_size=6), st.lists(st.sampled_from("abc"), min_size=1, max_size=4))
def test_an_accepted_link_stays_in_the_volume(target: list[str], place: list[str]) -> None:
    """Walked by hand, with every step into a link's target counted: it never leaves the top."""
    if link_problem("/".join(place), "/".join(target)) is not None:
        return
    depth = len(place) - 1
    for part in target:
        depth += {"..": -1, ".": 0}.get(part, 1)
        assert depth >= 0
    assert ".." not in target[next((n for n, part in enumerate(target) if part != ".."), len(target)) :]


@pytest.mark.parametrize(
    "path",
    ["data", "/", "//", "/a/../b", "/a/", "/usr/x", "/job", "/tmp/x", "/var", "/a b", "/ä", "/a\n", "/opt", "/proc/1"],
)
def test_a_volume_is_not_mounted_on_the_sandbox_itself(path: str) -> None:
    with pytest.raises(ValueError):
        check_mount_path(path)


def test_variables_are_named_after_volumes() -> None:
    assert check_mount_path("/mnt/data") == "/mnt/data"
    assert variable_of("my-data") == "COMPUTEPOOL_VOLUME_MY_DATA"
