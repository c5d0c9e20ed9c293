"""The peers install the same bytes everywhere, from wherever the machine gets its packages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.peers.catalogue import PEERS
from bench.peers.environment import REQUIREMENTS

LOCKS = sorted(REQUIREMENTS.iterdir())


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_every_entry_is_pinned_and_hashed(lock: Path) -> None:
    joined = lock.read_text().replace("\\\n", " ")
    for entry in (line for line in joined.splitlines() if line and not line.startswith("#")):
        assert re.match(r"[a-z0-9][\w.-]*(\[[\w,-]+\])?==\S+ .*--hash=sha256:", entry), entry


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_no_host_names(lock: Path) -> None:
    assert not re.findall(r"://|--(?:extra-)?index-url|--find-links|--trusted-host| @ ", lock.read_text())


def test_every_peer_has_its_lock_and_its_module() -> None:
    assert {f"{peer.requirements}.txt" for peer in PEERS} == {lock.name for lock in LOCKS}
    assert all((REQUIREMENTS.parent / f"{peer.module}.py").exists() for peer in PEERS)
